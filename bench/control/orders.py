"""What runs the engines in this bench: a receiver of the sidecar's webhooks, which starts, stops and restarts
the processes as it is told, and notes when."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from bench.servers import ports
from bench.servers.engine import Engine

SECRET = "whsec_" + base64.b64encode(b"a secret of the control bench").decode()


@dataclass(frozen=True, slots=True)
class Order:
    """One order, at CLOCK_MONOTONIC s."""

    at: float
    backend: str
    action: str
    reason: str


class Orders:
    """The receiver. `url` is where it listens."""

    def __init__(self, engines: Mapping[str, Engine]) -> None:
        self.received: list[Order] = []
        self.refused = 0
        self._engines = engines
        self._port = ports.free_ports(1)[0]

    @property
    def url(self) -> str:
        """For the configuration."""
        return f"http://127.0.0.1:{self._port}/engines"

    async def start(self) -> None:
        """Listen."""
        app = web.Application()
        app.router.add_post("/engines", self._take)
        self._runner = web.AppRunner(app, access_log=None)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self._port).start()

    async def stop(self) -> None:
        """Listen no more."""
        await self._runner.cleanup()

    def first(self, action: str, backend: str, since: float) -> float | None:
        """When this was ordered first, from `since` on."""
        found = (one.at for one in self.received if (one.action, one.backend) == (action, backend))
        return min((at for at in found if at >= since), default=None)

    async def _take(self, request: web.Request) -> web.Response:
        body = await request.read()
        if not _signed(request, body):
            self.refused += 1
            return web.Response(status=401)
        data = json.loads(body)["data"]
        self.received.append(Order(time.monotonic(), data["backend"], data["action"], data["reason"]))
        engine = self._engines[data["backend"]]
        if data["action"] == "stop":
            engine.kill()
        elif data["action"] == "start" and engine.running:
            return web.Response(status=200)
        else:
            # In this thread: a child process ends with the thread that started it.
            engine.restart()
        return web.Response(status=202)


def _signed(request: web.Request, body: bytes) -> bool:
    head = f"{request.headers['webhook-id']}.{request.headers['webhook-timestamp']}.".encode()
    key = base64.b64decode(SECRET.removeprefix("whsec_"))
    wanted = base64.b64encode(hmac.new(key, head + body, hashlib.sha256).digest()).decode()
    return hmac.compare_digest(f"v1,{wanted}", request.headers["webhook-signature"])
