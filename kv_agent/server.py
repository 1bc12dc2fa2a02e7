"""The agent's routes: `POST /kv/fetch` for the sidecar, `POST /kv/send` for agents, `GET /kv/counts`."""

from __future__ import annotations

import hmac
import json
from dataclasses import asdict
from typing import Any, Final

from aiohttp import web

from kv_agent.agent import Agent, AgentError

LARGEST_QUESTION: Final = 64 * 1024**2
SHORTEST_TOKEN: Final = 16
LONGEST_MS: Final = 600_000


def make_app(agent: Agent, token: str | None) -> web.Application:
    """The application of an agent; with a token only who knows it is answered."""

    @web.middleware
    async def guard(request: web.Request, handler: Any) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token is not None and not hmac.compare_digest(given.encode(), token.encode()):
            return _error(401, "the agents' token is wanted")
        try:
            response: web.StreamResponse = await handler(request)
        except AgentError as error:
            return _error(409, str(error))
        return response

    async def fetch(request: web.Request) -> web.Response:
        asked = await _question(request)
        source, ms = asked.get("source"), asked.get("timeout_ms")
        wanted = asked.get("request")
        if (
            not isinstance(source, str)
            or not isinstance(ms, int | float)
            or not 0 < ms <= LONGEST_MS
            or not isinstance(wanted, dict)
        ):
            return _error(400, 'expected {"source": URL, "kind": ..., "request": {...}, "timeout_ms": ...}')
        return web.json_response(asdict(await agent.fetch(source, str(asked.get("kind")), wanted, ms)))

    async def send(request: web.Request) -> web.Response:
        return web.json_response(agent.offer(await _question(request)))

    async def counts(_: web.Request) -> web.Response:
        return web.json_response(asdict(agent.counts))

    async def close(_: web.Application) -> None:
        await agent.close()

    app = web.Application(middlewares=[guard], client_max_size=LARGEST_QUESTION)
    app.router.add_post("/kv/fetch", fetch)
    app.router.add_post("/kv/send", send)
    app.router.add_get("/kv/counts", counts)
    app.on_cleanup.append(close)
    return app


async def _question(request: web.Request) -> dict[str, Any]:
    try:
        found = json.loads(await request.read())
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AgentError("a JSON object is wanted")
    return found


def _error(status: int, text: str) -> web.Response:
    return web.json_response({"error": text}, status=status)
