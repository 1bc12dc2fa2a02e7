"""A client on a bare connection, which sees every early hint."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

TIMEOUT_S = 120


@dataclass
class Hint:
    """One `103 Early Hints`; times are CLOCK_MONOTONIC in s."""

    at: float
    position: int
    wait: float | None
    """Estimated, s; the likely end of a range."""
    most: float | None
    """The far end of a range."""


@dataclass
class Answer:
    """What became of one request."""

    sent: float
    ended: float = 0.0
    status: int = 0
    """0: the connection broke."""
    wait_ms: int | None = None
    """In the queue, by the gateway's header."""
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    hints: list[Hint] = field(default_factory=list)

    @property
    def latency(self) -> float:
        """From sending to the end of the answer, s."""
        return self.ended - self.sent


async def ask(port: int, body: bytes, headers: dict[str, str]) -> Answer:
    """Send a chat request over a connection of its own."""
    answer = Answer(sent=time.monotonic())
    lines = [f"{name}: {value}\r\n" for name, value in headers.items()]
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"{''.join(lines)}Content-Length: {len(body)}\r\n\r\n"
    )
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(head.encode() + body)
            while True:
                status, found = await _head(reader)
                if status != 103:
                    break
                answer.hints.append(_hint(found))
            answer.headers = found
            answer.body = await reader.readexactly(int(found.get("content-length", "0")))
            answer.status = status
    except (OSError, TimeoutError, asyncio.IncompleteReadError, ValueError):
        pass
    finally:
        answer.ended = time.monotonic()
        if writer:
            writer.close()
    waited = answer.headers.get("x-tokenweir-wait-ms")
    answer.wait_ms = int(waited) if waited else None
    return answer


async def _head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    text = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status, *lines = text.rstrip().split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(status.split(" ", 2)[1]), {name.strip().lower(): value.strip() for name, _, value in pairs}


def _hint(headers: dict[str, str]) -> Hint:
    wait, _, most = headers.get("tokenweir-estimated-wait", "").partition("-")
    return Hint(
        at=time.monotonic(),
        position=int(headers["tokenweir-queue-position"]),
        wait=float(wait) if wait else None,
        most=float(most) if most else None,
    )
