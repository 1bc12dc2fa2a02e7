"""The hosts' DCGM exporters: they pass on what the emulated cards tell, until they are silenced."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import aiohttp
from aiohttp import web

from bench.servers import ports


class Exporter:
    """One server with a page for each engine's card."""

    def __init__(self, engines: Mapping[str, str]) -> None:
        """`engines`: name -> address."""
        self.silent: set[str] = set()
        """Engines whose exporter takes connections and never answers."""
        self._engines = engines
        self._port = ports.free_ports(1)[0]

    def url(self, engine: str) -> str:
        """Where the card of an engine is told."""
        return f"http://127.0.0.1:{self._port}/{engine}/metrics"

    async def start(self) -> None:
        """Listen."""
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=2))
        app = web.Application()
        app.router.add_get("/{engine}/metrics", self._page)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()
        await self._http.close()

    async def _page(self, request: web.Request) -> web.Response:
        name = request.match_info["engine"]
        while name in self.silent:  # noqa: ASYNC110  (a scenario sets it from outside)
            await asyncio.sleep(0.05)
        try:
            async with self._http.get(f"{self._engines[name]}/dcgm/metrics") as answer:
                return web.Response(status=answer.status, body=await answer.read())
        except (aiohttp.ClientError, OSError, TimeoutError):
            return web.Response(status=502)
