"""The sidecar's HTTP client: keep-alive, time-outs, a bound on what it reads, its own traffic counted."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Final

import aiohttp
import structlog
from multidict import CIMultiDict
from yarl import URL

from sidecar.clock import monotonic_ms
from sidecar.telemetry.health import Look

log = structlog.get_logger(__name__)

BODY_LIMIT: Final = 8 * 1024**2
"""Bytes of an answer; a longer one is a failed look."""
OWN_TROUBLE: Final = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.EADDRNOTAVAIL, errno.EPERM}
)
"""Why this host makes no connection at all: no descriptor, no memory, no port left, a firewall of its own."""
NO_WAY: Final = frozenset({errno.ENETDOWN, errno.ENETUNREACH, errno.EHOSTDOWN, errno.EHOSTUNREACH})
"""Nobody there was asked: an engine that has died refuses, the network does not say this of it."""
TELL_EVERY_MS: Final = 60_000
"""How often such trouble is told while it lasts."""


class FetchError(Exception):
    """A request without a usable answer; `look` says which kind."""

    def __init__(self, look: Look, text: str) -> None:
        self.look = look
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer."""

    status: int
    body: bytes
    server: str | None


@dataclass(slots=True)
class Traffic:
    """What the sidecar's own looks cost the network."""

    requests: int = 0
    failures: int = 0
    bytes: int = 0
    blind: int = 0
    """Those that were never sent, for want of something on this host."""


@dataclass(frozen=True)
class Origin:
    """Where a backend is: its URL by address, and how it wants to be spoken to."""

    base: str
    """`http://10.0.0.11:8000`, with the resolved address."""
    host_header: str
    server_name: str | None = None
    tls: ssl.SSLContext | None = None
    api_key: str | None = None
    _urls: dict[str, URL] = field(default_factory=dict, compare=False)
    """Parsed once: parsing costs more than looking up, at 500 requests a second."""

    def url(self, path: str) -> URL:
        """The URL of a page."""
        found = self._urls.get(path)
        if found is None:
            found = self._urls[path] = URL(self.base + path)
        return found

    @cached_property
    def headers(self) -> CIMultiDict[str]:
        """What every request carries."""
        headers = CIMultiDict({"Host": self.host_header})
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key}"
        return headers


class Fetcher:
    """GET requests over one pool of kept connections."""

    def __init__(self, timeout_ms: int) -> None:
        self._timeout_ms = timeout_ms
        self.traffic = Traffic()
        self._told_at = float("-inf")
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the pool; inside the event loop."""
        # Engines behind uvicorn close idle connections after 5 s; a slower rhythm than that would race.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4, force_close=False),
            auto_decompress=False,  # a small page may hold gigabytes
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": "tokenweir-sidecar", "Accept-Encoding": "identity"},
            trust_env=False,
            read_bufsize=256 * 1024,
        )

    async def close(self) -> None:
        """Close the pool."""
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def get(self, origin: Origin, path: str, patience: float = 1) -> Answer:
        """GET `path` of a backend, within `patience` times the usual time. Raises FetchError."""
        return await self._get(
            origin.url(path), origin.headers, origin.tls, origin.server_name, self._timeout_ms * patience
        )

    async def get_url(self, url: str) -> Answer:
        """GET another page (an exporter's), without the backend's credentials. Raises FetchError."""
        try:
            parsed = _parsed(url)
        except ValueError as error:
            raise FetchError(Look.ERROR, f"{url!r} is no URL: {error}") from None
        return await self._get(parsed, None, None, None, self._timeout_ms)

    async def _get(
        self,
        url: URL,
        headers: CIMultiDict[str] | None,
        tls: ssl.SSLContext | None,
        server_name: str | None,
        timeout_ms: float,
    ) -> Answer:
        if self._session is None:
            raise RuntimeError("the client is not open")
        self.traffic.requests += 1
        try:
            async with self._session.get(
                url,
                headers=headers,
                ssl=tls or True,
                server_hostname=server_name,
                allow_redirects=False,
                timeout=_timeout(timeout_ms),
            ) as response:
                body = await _body(response)
                self.traffic.bytes += len(body)
                return Answer(response.status, body, response.headers.get("Server"))
        except (TimeoutError, aiohttp.ServerTimeoutError):
            self.traffic.failures += 1
            raise FetchError(Look.LATE, f"no answer from {_place(url)} within {timeout_ms:.0f} ms") from None
        except aiohttp.ClientConnectorCertificateError as error:
            self.traffic.failures += 1
            raise FetchError(Look.ERROR, f"certificate refused: {error.certificate_error}") from None
        except aiohttp.ClientConnectorError as error:
            self.traffic.failures += 1
            number = error.os_error.errno
            reason = os.strerror(number) if number else str(error.os_error)
            raise FetchError(self._meaning(number, reason), f"{_place(url)}: {reason}") from None
        except ValueError as error:
            self.traffic.failures += 1
            raise FetchError(Look.ERROR, f"{_place(url)}: {error}") from None
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            self.traffic.failures += 1
            raise FetchError(Look.REFUSED, f"{_place(url)}: {error or type(error).__name__}") from None

    def _meaning(self, number: int | None, reason: str) -> Look:
        """What it says of an engine that no connection to it was made."""
        if number in NO_WAY:
            return Look.LATE
        if number not in OWN_TROUBLE:
            return Look.REFUSED
        self.traffic.blind += 1
        if monotonic_ms() - self._told_at >= TELL_EVERY_MS:
            self._told_at = monotonic_ms()
            log.error("cannot_look", reason=reason, consequence="backends keep their states meanwhile")
        return Look.BLIND


async def _body(response: aiohttp.ClientResponse) -> bytes:
    encoding = response.headers.get("Content-Encoding", "identity")
    if encoding.lower() != "identity":
        raise ValueError(f"the answer is compressed ({encoding[:32]!r}), which was not asked for")
    if (response.content_length or 0) > BODY_LIMIT:
        raise ValueError(f"the answer is longer than {BODY_LIMIT} bytes")
    if response.content_length is not None:
        return await response.read()
    parts: list[bytes] = []
    size = 0
    async for part in response.content.iter_any():
        size += len(part)
        if size > BODY_LIMIT:
            raise ValueError(f"the answer is longer than {BODY_LIMIT} bytes")
        parts.append(part)
    return b"".join(parts)


@lru_cache
def _timeout(ms: float) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(total=ms / 1000)


@lru_cache(4096)
def _parsed(url: str) -> URL:
    return URL(url)


def _place(url: URL) -> str:
    return f"{url.authority}{url.path}"


def tls_context(verify: bool, ca: str | None) -> ssl.SSLContext:
    """A context that verifies by the PEM file `ca` (None: the system's), or not at all. Raises OSError."""
    context = ssl.create_default_context(cafile=ca)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
