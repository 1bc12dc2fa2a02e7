"""Engines, a controller and agents that answer as their documentation says, for the adapters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from sidecar.telemetry.http import Origin
from sidecar.transfer.calls import Calls
from sidecar.transfer.port import End, Move
from tokenweir.config.transfer import BackendTransferConfig

Answer = Callable[[dict[str, Any]], Any]


class Peer:
    """A server whose answers are given by path; it keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.headers: list[dict[str, str]] = []
        app = web.Application(client_max_size=1 << 26)
        app.router.add_route("POST", "/{path:.*}", self._handle)
        self._server = TestServer(app)

    async def start(self) -> Peer:
        await self._server.start_server()
        return self

    async def stop(self) -> None:
        await self._server.close()

    @property
    def url(self) -> str:
        return str(self._server.make_url("")).rstrip("/")

    async def _handle(self, request: web.Request) -> web.Response:
        body = json.loads(await request.read())
        self.asked.append((request.path, body))
        self.headers.append(dict(request.headers))
        if request.path not in self.answers:
            return web.json_response({"detail": "Not Found"}, status=404)
        answer = self.answers[request.path](body)
        if isinstance(answer, Awaitable):
            answer = await answer
        if isinstance(answer, int):
            return web.json_response({"detail": "no worker answers"}, status=answer)
        return web.json_response(answer)

    def end(self, name: str, **members: Any) -> End:
        """This server as a backend."""
        origin = Origin(self.url, "engine.test", api_key="engine-key")
        return End(name, origin, BackendTransferConfig(**members))


@pytest.fixture
async def peer() -> AsyncIterator[Peer]:
    """One that plays every part."""
    found = await Peer().start()
    yield found
    await found.stop()


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    found = Calls()
    yield found
    await found.close()


@pytest.fixture
def move(peer: Peer) -> Callable[..., Move]:
    """A chat that moves from gpu-a to gpu-b; `members` are the body's."""

    def make(kind: str = "chat", **members: Any) -> Move:
        body = {"model": "public", "messages": [{"role": "user", "content": "hi"}], "stream": True}
        if kind == "completions":
            body = {"model": "public", "prompt": "hi"}
        return Move(
            peer.end("gpu-a", instance="one", kv_agent=peer.url),
            peer.end("gpu-b", instance="two", kv_agent=peer.url),
            kind,
            "engine-model",
            1000,
            500,
            json.dumps(body | members).encode(),
        )

    return make
