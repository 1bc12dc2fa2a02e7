"""The agent's HTTP server: `GET /metrics`, and with a folder of weights `POST` and `GET /prefetch`."""

from __future__ import annotations

import asyncio
import hmac
import socket
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from sidecar.actuators.prefetch import READERS, Prefetch
from sidecar.agent.page import render
from sidecar.clock import monotonic_ms
from sidecar.telemetry.nvml import Nvml, NvmlUnavailableError

MOST_OFTEN_MS: Final = 100
"""The cards are looked at no more often, however many ask."""
MOST_PREFETCHES: Final = 16
PAGE: Final = {"Content-Type": "text/plain; version=0.0.4; charset=utf-8"}


class Agent:
    """One host. Prefetches are allowed below `weights` only, and only to who knows the token."""

    def __init__(self, nvml: Nvml, weights: Path | None = None, token: str | None = None) -> None:
        self._nvml = nvml
        self._weights = weights.resolve() if weights is not None else None
        self._token = token
        self._page = ""
        self._page_at = float("-inf")
        self._looking = asyncio.Lock()
        self._prefetches: dict[str, Prefetch] = {}
        self._tasks: set[asyncio.Task[Any]] = set()

    def app(self) -> web.Application:
        """The routes."""
        app = web.Application(client_max_size=64 * 1024)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/healthz", self._healthz)
        app.router.add_post("/prefetch", self._begin)
        app.router.add_get("/prefetch", self._progress)
        app.on_shutdown.append(self._stop)
        return app

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.json_response({"ok": True})

    async def _metrics(self, _: web.Request) -> web.Response:
        async with self._looking:
            now = monotonic_ms()
            if now - self._page_at >= MOST_OFTEN_MS:
                try:
                    cards = await asyncio.to_thread(self._nvml.read)
                except NvmlUnavailableError as error:
                    return web.json_response({"error": str(error)}, status=503)
                took = monotonic_ms() - now
                self._page = render(cards, socket.gethostname(), took, time.process_time())
                self._page_at = now
        return web.Response(text=self._page, headers=PAGE)

    async def _begin(self, request: web.Request) -> web.Response:
        problem = self._refused(request)
        if problem is not None:
            return problem
        try:
            body = await request.json()
            name, readers = str(body["path"]), int(body.get("readers", READERS))
        except (ValueError, KeyError, TypeError, AttributeError):
            return _error(400, 'expected {"path": a folder or file of weights}')
        path = self._below(name)
        if path is None or not 1 <= readers <= 64:
            return _error(403, f"{name} is not below {self._weights}, or readers are not 1 to 64")
        known = self._prefetches.get(name)
        if known is None or known.progress().finished:
            self._forget()
            known = self._prefetches[name] = Prefetch(path, readers)
            task = asyncio.create_task(known.run(), name=f"prefetch {name}")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return web.json_response(asdict(known.progress()), status=202)

    async def _progress(self, request: web.Request) -> web.Response:
        problem = self._refused(request)
        if problem is not None:
            return problem
        known = self._prefetches.get(request.query.get("path", ""))
        if known is None:
            return _error(404, "no prefetch of that path")
        return web.json_response(asdict(known.progress()))

    def _refused(self, request: web.Request) -> web.Response | None:
        if self._weights is None or self._token is None:
            return _error(404, "the agent was started without --weights and --token-file")
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            return _error(401, "the agent's token is wanted")
        return None

    def _below(self, name: str) -> Path | None:
        """The path, if it is below the folder of weights; links do not lead out of it."""
        if self._weights is None or "\0" in name:
            return None
        path = (self._weights / name).resolve()
        return path if path == self._weights or self._weights in path.parents else None

    def _forget(self) -> None:
        """Make room for another prefetch."""
        ended = [name for name, one in self._prefetches.items() if one.progress().finished]
        for name in ended[: max(len(self._prefetches) + 1 - MOST_PREFETCHES, 0)]:
            del self._prefetches[name]

    async def _stop(self, _: web.Application) -> None:
        for prefetch in self._prefetches.values():
            prefetch.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._nvml.close()


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
