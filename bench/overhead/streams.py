"""A client of Server-Sent Events that times the first byte of content and the gaps between events."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from dataclasses import dataclass, field

from bench.overhead import bodies
from bench.overhead.upstream import EVENT_MS, EVENTS
from bench.servers import cpu


@dataclass
class StreamSample:
    """Many streams through one system. Times in ms."""

    first_ms: list[float] = field(default_factory=list)
    """Request written to first byte of the first event, one per stream."""
    gaps_ms: list[float] = field(default_factory=list)
    """Between the arrivals of two events; 0 for two that arrive together."""
    events: int = 0
    broken: int = 0
    cpu_us: float = 0
    """CPU per event of all processes of the system, us."""


class _Stream(asyncio.Protocol):
    """One connection that asks for one stream after the other."""

    def __init__(self, request: bytes, sample: StreamSample, end: float) -> None:
        self._request = request
        self._sample = sample
        self._end = end
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._ask()

    def _ask(self) -> None:
        self._seen = 0
        self._tail = b""
        self._last = 0.0
        self._asked = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        text = self._tail + data
        found = text.count(b"data:")
        self._tail = text[-4:]
        if found and not self._seen:
            self._sample.first_ms.append((now - self._asked) * 1000)
        for number in range(found):
            self._seen += 1
            # The usage event and [DONE] come at once after the last pause: only paced events have a gap.
            if 1 < self._seen <= EVENTS:
                self._sample.gaps_ms.append((now - self._last) * 1000 if number == 0 else 0.0)
        if found:
            self._last = now
        if b"0\r\n\r\n" in text[-16:]:
            self._sample.events += self._seen
            if self._seen != EVENTS + 2:
                self._sample.broken += 1
            if now < self._end:
                self._ask()
            else:
                self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed.done():
            if time.perf_counter() < self._end:
                self._sample.broken += 1
            self.closed.set_result(None)


async def _drive(port: int, connections: int, seconds: float, seed: int) -> StreamSample:
    sample = StreamSample()
    body = bodies.stream()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    source = random.Random(seed)
    loop = asyncio.get_running_loop()
    end = time.perf_counter() + seconds
    opened: list[_Stream] = []
    for _ in range(connections):
        await asyncio.sleep(source.uniform(0, 2 * EVENT_MS / 1000))
        _, stream = await loop.create_connection(lambda: _Stream(request, sample, end), "127.0.0.1", port)
        opened.append(stream)
    await asyncio.wait_for(asyncio.gather(*(stream.closed for stream in opened)), seconds + 15)
    return sample


def run(port: int, root: int, connections: int, seconds: float, seed: int) -> StreamSample:
    """Keep `connections` streams open through the system on `port` for about `seconds`."""
    before = cpu.cpu_seconds(root)
    gc.collect()
    gc.disable()
    try:
        sample = asyncio.run(_drive(port, connections, seconds, seed))
    finally:
        gc.enable()
    sample.cpu_us = (cpu.cpu_seconds(root) - before) / max(1, sample.events) * 1e6
    return sample
