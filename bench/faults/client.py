"""A client on bare connections: it can leave at any moment, and knows exactly what came back."""

from __future__ import annotations

import asyncio
import contextlib
import time
from dataclasses import dataclass, field
from enum import StrEnum

from bench.faults.traffic import Leave, Request

TIMEOUT_S = 60


class Outcome(StrEnum):
    """How a request ended, as its client sees it."""

    OK = "ok"
    """A whole answer with status 200."""
    LEFT = "left"
    """The client left, as it meant to."""
    ERROR = "error"
    """An answer with an error, or a stream that ends with an error event."""
    BROKEN = "broken"
    """No answer, or one that ends in the middle."""
    TIMEOUT = "timeout"


@dataclass
class Record:
    """One request and what became of it. Times are CLOCK_MONOTONIC in s."""

    id: str
    stream: bool
    leave: Leave | None
    started: float
    port: int = 0
    """The client's port: it tells which worker held the connection."""
    sent: float | None = None
    ended: float = 0
    outcome: Outcome = Outcome.BROKEN
    status: int = 0
    backend: str = ""
    detail: str = ""
    headers: dict[str, str] = field(default_factory=dict)


def _head(request: Request, port: int) -> bytes:
    return (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"X-Request-Id: {request.id}\r\nContent-Length: {len(request.body)}\r\n\r\n"
    ).encode()


class _Left(Exception):
    """The client leaves now."""


async def send(request: Request, port: int) -> Record:
    """Send one request over a connection of its own and follow it to its end."""
    record = Record(request.id, request.stream, request.leave, started=time.monotonic())
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(TIMEOUT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2**20)
            record.port = writer.get_extra_info("sockname")[1]
            await _write(request, writer, port)
            record.sent = time.monotonic()
            await _read(request, reader, record)
    except _Left:
        record.outcome = Outcome.LEFT
    except TimeoutError:
        record.outcome = Outcome.TIMEOUT
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        record.outcome = Outcome.BROKEN
        record.detail = record.detail or f"{type(error).__name__}: {error}"
    finally:
        record.ended = time.monotonic()
        if writer:
            # A reset, not a polite end, where the client leaves: both happen to real clients.
            if record.outcome is Outcome.LEFT and hash(request.id) % 2:
                writer.transport.abort()
            else:
                writer.close()
    return record


async def _write(request: Request, writer: asyncio.StreamWriter, port: int) -> None:
    head = _head(request, port)
    if request.leave is Leave.CONNECTED:
        raise _Left
    if request.leave is Leave.HEAD:
        writer.write(head[: len(head) // 2])
        await asyncio.sleep(0.01)
        raise _Left
    if request.leave is Leave.BODY:
        writer.write(head + request.body[: len(request.body) // 2])
        await asyncio.sleep(0.01)
        raise _Left
    writer.write(head + request.body)
    await writer.drain()


async def _read(request: Request, reader: asyncio.StreamReader, record: Record) -> None:
    if request.leave is Leave.SENT:
        raise _Left
    if request.leave is Leave.WAITING:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(request.leave_after):
                await reader.readuntil(b"\r\n\r\n")
        raise _Left
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    status, *lines = head.rstrip().split("\r\n")
    record.status = int(status.split(" ", 2)[1])
    pairs = (line.partition(":") for line in lines)
    record.headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    record.backend = record.headers.get("x-tokenweir-backend", "")
    if request.leave is Leave.FIRST:
        raise _Left
    if request.leave is Leave.STREAM:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(request.leave_after):
                await _body(reader, record)
        raise _Left
    answer = await _body(reader, record)
    record.outcome = judge(record.status, request.stream, answer)
    if record.outcome is not Outcome.OK:
        record.detail = answer[-300:].decode("utf-8", "replace")


async def _body(reader: asyncio.StreamReader, record: Record) -> bytes:
    """Read the whole body; raise IncompleteReadError when the connection ends before it does."""
    if record.headers.get("transfer-encoding", "").lower() != "chunked":
        return await reader.readexactly(int(record.headers.get("content-length", "0")))
    parts: list[bytes] = []
    while True:
        size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
        part = await reader.readexactly(size + 2)
        if size == 0:
            return b"".join(parts)
        parts.append(part[:-2])


def judge(status: int, stream: bool, answer: bytes) -> Outcome:
    """Return whether a complete HTTP answer is also a whole answer of the model."""
    if status != 200:
        return Outcome.ERROR
    if not stream:
        return Outcome.OK if b'"usage"' in answer else Outcome.BROKEN
    if b'data: {"error"' in answer:
        return Outcome.ERROR
    return Outcome.OK if b"data: [DONE]" in answer else Outcome.BROKEN
