"""Who may use the admin API: with a token, its bearer; without one, only this host.

A browser on this host is not this host's operator: without a token the `Host` must be a loopback name (a page
whose name was rebound to 127.0.0.1 sends its own), and a page of another origin is refused.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
from typing import Final

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from sidecar.api.dashboard import FILES
from sidecar.api.problems import answer

OPEN_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Probes tell nothing that needs guarding."""
PAGE_PATHS: Final = frozenset(FILES)
"""The pages' files: a browser cannot send a token for them, and they hold no data."""


class Guard:
    """ASGI middleware in front of everything else."""

    def __init__(self, app: ASGIApp, token: str | None) -> None:
        self._app = app
        self._token = None if token is None else hashlib.sha256(token.encode()).digest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the request through, or answer it."""
        if scope["type"] == "http" and scope["path"] not in OPEN_PATHS:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refusal(scope, receive, send)
                return
        elif scope["type"] == "websocket":
            return
        await self._app(scope, receive, send)

    def _refusal(self, scope: Scope) -> JSONResponse | None:
        headers = Headers(scope=scope)
        if self._token is not None:
            if scope["path"] in PAGE_PATHS:
                return None
            scheme, _, given = headers.get("authorization", "").partition(" ")
            digest = hashlib.sha256(given.strip().encode("utf-8", "surrogateescape")).digest()
            if scheme.lower() == "bearer" and hmac.compare_digest(digest, self._token):
                return None
            return answer(
                401,
                "a token is wanted: send `Authorization: Bearer <admin.token>`",
                headers={"WWW-Authenticate": "Bearer"},
            )
        client = scope.get("client")
        if client is not None and not _loopback(client[0]):
            return answer(403, "without `admin.token` the admin API answers to this host only")
        host = headers.get("host", "")
        if not _loopback(_name(host)):
            return answer(
                403, "the Host header must be localhost or a loopback address (or set `admin.token`)"
            )
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return answer(403, "requests from pages of another origin are refused")
        if headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}:
            return answer(403, "requests from pages of another site are refused")
        return None


def _name(host: str) -> str:
    """The Host header without its port."""
    if host.startswith("["):
        name, _, rest = host[1:].partition("]")
        return host if rest and not rest.startswith(":") else name
    return host.partition(":")[0]


def _loopback(name: str) -> bool:
    if name.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
