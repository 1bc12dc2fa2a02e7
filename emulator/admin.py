"""Health and metrics, and the `/admin/` endpoints with which tests and benches make faults and count."""

from __future__ import annotations

import json

from aiohttp import web

from emulator.faults import FaultError
from emulator.openai.errors import ApiError
from emulator.server import Server

PAGE = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


class Admin:
    """Handlers of one server."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def add_to(self, router: web.UrlDispatcher) -> None:
        """Register the routes."""
        router.add_get("/health", self.health)
        router.add_get("/metrics", self.metrics)
        router.add_get("/dcgm/metrics", self.dcgm)
        router.add_get("/version", self.version)
        router.add_get("/admin/fault", self.faults)
        router.add_post("/admin/fault", self.set_fault)
        router.add_get("/admin/executed", self.executed)
        router.add_delete("/admin/executed", self.forget)
        router.add_get("/admin/state", self.state)
        router.add_post("/admin/kv", self.kv)

    async def health(self, request: web.Request) -> web.Response:
        """`GET /health`: 200 and nothing, as vLLM."""
        return web.Response()

    async def version(self, request: web.Request) -> web.Response:
        """`GET /version`."""
        return web.json_response({"version": "emulator"})

    async def metrics(self, request: web.Request) -> web.Response:
        """`GET /metrics`: the engine's."""
        self._refuse()
        self._server.update()
        return web.Response(text=self._server.metrics.page(), headers=PAGE)

    async def dcgm(self, request: web.Request) -> web.Response:
        """`GET /dcgm/metrics`, and `/metrics` on the port of its own: the GPU's."""
        self._refuse()
        self._server.update()
        return web.Response(text=self._server.dcgm.page(), headers=PAGE)

    def _refuse(self) -> None:
        if fault := self._server.faults.active.get("refuse_metrics"):
            raise ApiError(int(fault["status"]), "metrics are refused (emulated)", code="emulated_fault")

    async def faults(self, request: web.Request) -> web.Response:
        """`GET /admin/fault`: the faults that are on, with their parameters."""
        return web.json_response(self._server.faults.active)

    async def set_fault(self, request: web.Request) -> web.Response:
        """`POST /admin/fault` with `{"kind": ..., parameters}`: switch one on; `none` switches all off."""
        try:
            kind, parameters = self._server.faults.parse(json.loads(await request.read()))
        except ValueError as error:
            code = "invalid_fault" if isinstance(error, FaultError) else "invalid_json"
            raise ApiError(400, str(error), code=code) from None
        self._server.faults.set(kind, parameters)
        return web.json_response(self._server.faults.active)

    async def executed(self, request: web.Request) -> web.Response:
        """`GET /admin/executed`: what the engine was made to do (`Journal.report`)."""
        return web.json_response(self._server.journal.report())

    async def forget(self, request: web.Request) -> web.Response:
        """`DELETE /admin/executed`: forget it."""
        self._server.journal.clear()
        return web.Response(status=204)

    async def kv(self, request: web.Request) -> web.Response:
        """`POST /admin/kv` with `{"kind": "chat", "request": {...}}`: digests of the tensors that are kept of
        its prompt, a block each."""
        tensors = self._server.tensors
        if tensors is None:
            raise ApiError(404, "no tensors are kept: start with --kv-bytes", code="no_tensors")
        try:
            asked = json.loads(await request.read())
            found = tensors.digests(str(asked["kind"]), asked["request"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ApiError(400, str(error), code="invalid_request") from None
        return web.json_response({"digests": found})

    async def state(self, request: web.Request) -> web.Response:
        """`GET /admin/state`: what the engine holds now."""
        if not self._server.clock.stopped:
            self._server.update()
        engine, settings = self._server.engine, self._server.settings
        return web.json_response(
            {
                "ready": self._server.ready,
                "running": len(engine.running),
                "waiting": len(engine.waiting),
                "kv_usage": engine.memory.usage,
                "kv_tokens": engine.capacity,
                "preemptions": engine.counters.preemptions,
                "gpu": settings.gpu,
                "model": settings.model,
                "precision": settings.precision,
                "kind": settings.kind.value,
                "max_model_len": settings.context,
            }
        )
