"""The agent of one engine: fetches caches from other agents, and sends them what its engine has.

A fetch: the receiver asks the sender (`/kv/send`) with the request whose cache it wants, how much of it is
here, and where they meet. The sender says what comes, then sends it over their link. Links are kept; one that
broke is made anew by the next fetch.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp

from kv_agent import link as links
from kv_agent.link import End, Link, LinkError, Meeting
from kv_agent.store import KvStore

MOST_LINKS: Final = 256
SPARE_S: Final = 0.5
"""How much longer a sender holds on than its receiver waits."""


class AgentError(Exception):
    """A cache cannot be fetched, or not be given; the text says why."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """What a fetch came to: leading tokens that are in the cache now, bytes that were sent for it."""

    tokens: int
    bytes: int
    ms: float


@dataclass(slots=True)
class Counts:
    """What this agent has done since it was started."""

    fetching: int = 0
    """Under way: the blocks are coming."""
    fetched: int = 0
    failed: int = 0
    sent: int = 0
    nccl: int = 0
    """Of the fetches and sends that ended well, those between GPUs."""
    bytes_in: int = 0
    bytes_out: int = 0


@dataclass(slots=True)
class _Way:
    """A link in the making or made, used by one transfer at a time."""

    name: str
    source: str = ""
    """The URL of the sender's agent, on the receiver's side."""
    link: Link | None = None
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Agent:
    """One engine's agent. `host` is the address on which other agents reach it. `pace`: bytes a second that
    it sends at most; None: as fast as it goes. `on_piece` is called, in a thread, after each piece sent."""

    def __init__(
        self,
        store: KvStore,
        host: str,
        token: str | None = None,
        *,
        pace: float | None = None,
        on_piece: Callable[[], None] | None = None,
    ) -> None:
        self._store, self._host, self._token = store, host, token
        self._pace, self._on_piece = pace, on_piece
        self.counts = Counts()
        self._device = links.device()
        self._meeting: Meeting | None = None
        self._from: OrderedDict[str, _Way] = OrderedDict()  # by the URL of the sender
        self._to: OrderedDict[str, _Way] = OrderedDict()  # by the name of the link
        self._sending: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Give everything up."""
        for task in self._sending:
            task.cancel()
        await asyncio.gather(*self._sending, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    # The receiver

    async def fetch(self, source: str, kind: str, request: Mapping[str, Any], ms: float) -> Fetched:
        """Bring the cache of a request's prompt here, from the agent at `source`. Raises AgentError."""
        began = time.monotonic()
        until = began + ms / 1000
        names = self._names(kind, request)
        if not names:
            raise AgentError("the prompt fills no block")
        way = self._from.get(source)
        if way is None:
            way = self._from[source] = _Way(secrets.token_hex(8), source)
            if len(self._from) > MOST_LINKS:
                self._from.popitem(last=False)
        try:
            async with asyncio.timeout(ms / 1000), way.lock:
                found = await self._receive(way, {"kind": kind, "request": request}, names, until)
        except (AgentError, LinkError, TimeoutError, asyncio.CancelledError) as error:
            self.counts.failed += 1
            if self._from.get(source) is way:
                del self._from[source]
            if isinstance(error, asyncio.CancelledError):
                raise
            raise AgentError(str(error) or f"not done within {ms:.0f} ms") from None
        self.counts.fetched += 1
        self.counts.nccl += way.link is not None and way.link.backend == "nccl"
        self.counts.bytes_in += found[1]
        return Fetched(found[0] * self._store.block_tokens, found[1], (time.monotonic() - began) * 1000)

    async def _receive(self, way: _Way, wish: Mapping[str, Any], names: Any, until: float) -> tuple[int, int]:
        """Leading blocks that are here in the end, and bytes that came."""
        have = self._store.held(names)
        if have == len(names):
            return have, 0
        if self._meeting is None:
            self._meeting = await asyncio.to_thread(Meeting, self._host)
        question = {
            **wish,
            "have": have,
            "block_bytes": self._store.block_bytes,
            "meet": [self._host, self._meeting.port],
            "device": self._device,
            "timeout_ms": max(1.0, (until - time.monotonic()) * 1000),
        }
        told = await self._ask(way.source, {**question, "link": way.name, "fresh": way.link is None})
        if told.get("unknown"):  # its agent was started anew
            way.name, way.link = secrets.token_hex(8), None
            told = await self._ask(way.source, {**question, "link": way.name, "fresh": True})
        rows, backend = told.get("blocks"), told.get("backend")
        if not isinstance(rows, int) or backend not in {"gloo", "nccl"}:
            raise AgentError(f"{way.source} gives no answer of an agent")
        if rows <= 0:
            return have, 0
        if rows > len(names) - have:
            raise AgentError(f"{way.source} reads the prompt otherwise")
        self.counts.fetching += 1
        try:
            blocks = await asyncio.to_thread(self._take, way, rows, str(backend), until)
        finally:
            self.counts.fetching -= 1
        return self._store.write(names, have, blocks), blocks.numel()

    def _take(self, way: _Way, rows: int, backend: str, until: float) -> Any:
        if self._meeting is None:
            raise LinkError("the meeting is over")
        if way.link is None:
            left = max(links.LATEST_S, until - time.monotonic())
            end = End(links.RECEIVER, self._host, backend)
            way.link = Link(self._meeting.store, way.name, end, left)
        return way.link.receive(rows, self._store.block_bytes, until)

    async def _ask(self, source: str, question: Mapping[str, Any]) -> dict[str, Any]:
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=None), trust_env=False)
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        try:
            async with self._session.post(f"{source}/kv/send", json=question, headers=headers) as answer:
                found, status = await answer.json(), answer.status
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise AgentError(f"{source}: {str(error) or type(error).__name__}") from None
        if status != 200 or not isinstance(found, dict):
            raise AgentError(f"{source} answers {status}: {found}"[:300])
        return found

    # The sender

    def offer(self, question: Mapping[str, Any]) -> dict[str, Any]:
        """What of a request's cache comes over the link; it begins to come at once. `unknown` where the link
        is none of this agent's, and is not to be made. Raises AgentError."""
        try:
            kind, request, name = str(question["kind"]), dict(question["request"]), str(question["link"])
            (host, port), have = question["meet"], int(question["have"])
            width, seconds = int(question["block_bytes"]), float(question["timeout_ms"]) / 1000 + SPARE_S
            peer, fresh = str(question["device"]), bool(question["fresh"])
        except (KeyError, TypeError, ValueError):
            raise AgentError("this is no question of an agent") from None
        if width != self._store.block_bytes:
            raise AgentError(f"a block has {self._store.block_bytes} bytes here, and {width} there")
        names = self._names(kind, request)
        held = self._store.held(names)
        backend = links.backend_between(peer, self._device)
        if held > have:
            blocks = self._store.read(names[have:held])
            way = self._to.get(name)
            if way is None and not fresh:
                return {"unknown": True}
            if way is None:
                way = self._to[name] = _Way(name)
                if len(self._to) > MOST_LINKS:
                    self._to.popitem(last=False)
            task = asyncio.create_task(self._send(way, (str(host), int(port)), backend, blocks, seconds))
            self._sending.add(task)
            task.add_done_callback(self._sending.discard)
        return {"blocks": max(0, held - have), "backend": backend}

    async def _send(
        self, way: _Way, meet: tuple[str, int], backend: str, blocks: Any, seconds: float
    ) -> None:
        until = time.monotonic() + seconds
        try:
            async with way.lock:
                await asyncio.to_thread(self._give, way, meet, backend, blocks, until)
        except LinkError:
            self.counts.failed += 1
            self._to.pop(way.name, None)
        else:
            self.counts.sent += 1
            self.counts.nccl += backend == "nccl"
            self.counts.bytes_out += blocks.numel()

    def _give(self, way: _Way, meet: tuple[str, int], backend: str, blocks: Any, until: float) -> None:
        if way.link is None:
            left = max(links.LATEST_S, until - time.monotonic())
            store = links.meet(*meet, left)
            way.link = Link(store, way.name, End(links.SENDER, self._host, backend), left)
        way.link.send(blocks, until, self._pace, self._on_piece)

    def _names(self, kind: str, request: Mapping[str, Any]) -> Any:
        try:
            return self._store.blocks(kind, request)
        except ValueError as error:
            raise AgentError(str(error)) from None
