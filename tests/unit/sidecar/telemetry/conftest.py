"""Pages of the engines' metrics in their documented formats, under `pages/`, and a server that answers with
them."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from aiohttp import web

from sidecar.telemetry.exposition import Page
from sidecar.telemetry.http import Fetcher
from tests.unit.sidecar.telemetry.nvml_library import driver

__all__ = ["driver"]

PAGES = Path(__file__).parent / "pages"


@pytest.fixture
def page() -> Callable[[str], Page]:
    """A page by its name."""
    return lambda name: Page((PAGES / f"{name}.txt").read_bytes())


class Engine:
    """Answers path -> (status, body); a None hangs."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str] | None] = {
            "/health": (200, ""),
            "/v1/models": (200, '{"data": [{"id": "m", "owned_by": "vllm", "max_model_len": 4096}]}'),
            "/metrics": (200, (PAGES / "vllm.txt").read_text()),
        }
        self.asked: Counter[str] = Counter()
        self.authorization: str | None = None
        self.host: str | None = None
        self.port = 0
        self.headers: dict[str, str] = {}

    def serve(self, path: str, name: str) -> None:
        """Answer `path` with a page by its name."""
        self.answers[path] = (200, (PAGES / f"{name}.txt").read_text())

    async def answer(self, request: web.Request) -> web.Response:
        self.asked[request.path] += 1
        self.authorization = request.headers.get("Authorization")
        self.host = request.headers.get("Host")
        known = self.answers.get(request.path, (404, ""))
        if known is None:
            await asyncio.sleep(30)
            raise AssertionError
        return web.Response(status=known[0], text=known[1], headers=self.headers)


@pytest.fixture
async def engine() -> AsyncIterator[Engine]:
    made = Engine()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture
async def fetcher() -> AsyncIterator[Fetcher]:
    made = Fetcher(timeout_ms=300)
    await made.open()
    yield made
    await made.close()
