"""The web application of an emulated server, and of its GPU exporter."""

from __future__ import annotations

import hmac
import logging
from collections.abc import Awaitable, Callable

from aiohttp import web
from aiohttp.typedefs import Middleware

from emulator.admin import Admin
from emulator.endpoints import Endpoints, not_found
from emulator.openai.errors import ApiError
from emulator.server import Server

LARGEST_BODY = 256 << 20
SHUTDOWN_SECONDS = 2.0
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
logger = logging.getLogger(__name__)


def _check_key(request: web.Request, key: str | None) -> None:
    if key is None:
        return
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), key.encode()):
        raise ApiError(
            401, "Incorrect API key provided.", kind="authentication_error", code="invalid_api_key"
        )


def _guard(server: Server) -> Middleware:
    """What comes before every handler: a frozen server hangs, a starting one refuses, keys are checked."""

    @web.middleware
    async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            if not request.path.startswith("/admin/"):
                await server.faults.thawed()
                if not server.ready:
                    raise ApiError(503, "The model is being loaded.", code="starting")
            if request.path.startswith("/v1/"):
                _check_key(request, server.settings.api_key)
            if request.match_info.http_exception is not None:
                return not_found(request)
            return await handler(request)
        except ApiError as error:
            return error.response()
        except ConnectionError:
            # The client is gone: nobody reads this.
            return web.Response(status=499)
        except web.HTTPRequestEntityTooLarge:
            return ApiError(413, f"the body exceeds {LARGEST_BODY} bytes", code="body_too_large").response()

    return guard


def make_app(server: Server) -> web.Application:
    """The application of a server."""
    app = web.Application(middlewares=[_guard(server)], client_max_size=LARGEST_BODY)
    Endpoints(server).add_to(app.router)
    Admin(server).add_to(app.router)
    return app


def make_exporter(server: Server) -> web.Application:
    """The application on the GPU exporter's own port: `/metrics` is the GPU's."""
    app = web.Application(middlewares=[_guard(server)])
    app.router.add_get("/metrics", Admin(server).dcgm)
    return app


async def listen(app: web.Application, host: str, port: int) -> web.AppRunner:
    """Serve an application; port 0 takes a free one (`runner.addresses`). Raises OSError."""
    runner = web.AppRunner(
        app,
        access_log=None,
        # A client that leaves ends its handler at once, and with it what it holds in the engine.
        handler_cancellation=True,
        keepalive_timeout=3600,
        shutdown_timeout=SHUTDOWN_SECONDS,
    )
    await runner.setup()
    await web.TCPSite(runner, host, port, backlog=1024).start()
    return runner
