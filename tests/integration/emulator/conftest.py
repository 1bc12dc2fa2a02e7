"""Emulated servers on free ports, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from aiohttp import web
from openai import AsyncOpenAI

from emulator.app import listen, make_app, make_exporter
from emulator.engine import Limits
from emulator.server import Server
from emulator.settings import Settings

MODEL = "llama-3-8b"


@dataclass
class Running:
    """A running server, a client for it, and how often it has died."""

    server: Server
    url: str
    exporter: str
    client: httpx.AsyncClient
    crashes: list[None]
    sdks: list[AsyncOpenAI] = field(default_factory=list)

    async def chat(self, tokens: int = 5, **more: Any) -> httpx.Response:
        """A chat of `tokens` tokens; `id` becomes the request id, the rest goes into the body."""
        headers = {"X-Emulator-Output-Tokens": str(tokens)}
        if request_id := more.pop("id", None):
            headers["X-Request-Id"] = request_id
        body = {"model": MODEL, "messages": [{"role": "user", "content": "hello there"}], **more}
        return await self.client.post("/v1/chat/completions", json=body, headers=headers)

    async def fault(self, kind: str, **parameters: Any) -> None:
        """Switch a fault on."""
        (await self.client.post("/admin/fault", json={"kind": kind, **parameters})).raise_for_status()

    async def state(self) -> dict[str, Any]:
        """What the engine holds."""
        found: dict[str, Any] = (await self.client.get("/admin/state")).json()
        return found

    async def until(self, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait until the engine's state is as wanted, at most thirty seconds."""
        for _ in range(1500):
            if condition(state := await self.state()):
                return state
            await asyncio.sleep(0.02)
        raise AssertionError(f"the engine did not get there: {state}")

    async def executed(self) -> dict[str, Any]:
        """What the engine was made to do."""
        found: dict[str, Any] = (await self.client.get("/admin/executed")).json()
        return found

    def openai(self, key: str = "unused") -> AsyncOpenAI:
        """The official SDK's client."""
        self.sdks.append(AsyncOpenAI(base_url=f"{self.url}/v1", api_key=key, max_retries=0))
        return self.sdks[-1]

    async def close(self) -> None:
        """Close the clients."""
        for sdk in self.sdks:
            await sdk.close()
        await self.client.aclose()


Start = Callable[..., Awaitable[Running]]


@pytest.fixture
async def start() -> AsyncIterator[Start]:
    """Starts a server with the given settings (`max_num_seqs` and other limits too), 100 times faster than
    real by default."""
    runners: list[web.AppRunner] = []
    started: list[Running] = []

    async def make(**settings: Any) -> Running:
        names = ("max_num_seqs", "max_num_batched_tokens", "prefix_caching", "async_scheduling")
        limits = {name: settings.pop(name) for name in names if name in settings}
        crashes: list[None] = []
        found = Settings(**{"model": MODEL, "speed": 100.0, "limits": Limits(**limits), **settings})
        server = Server(found, lambda: crashes.append(None))
        urls = []
        for app in (make_app(server), make_exporter(server)):
            runner = await listen(app, "127.0.0.1", 0)
            runners.append(runner)
            urls.append(f"http://127.0.0.1:{runner.addresses[0][1]}")
        client = httpx.AsyncClient(base_url=urls[0], timeout=20)
        started.append(Running(server, urls[0], urls[1], client, crashes))
        return started[-1]

    yield make
    for running in started:
        await running.close()
    for runner in runners:
        await runner.cleanup()


@pytest.fixture
async def running(start: Start) -> Running:
    """A server with the default settings."""
    return await start()
