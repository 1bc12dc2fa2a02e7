"""A scripted inference server: it answers as a test tells it to and records what it was sent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from tests.integration.servers import PATIENCE


@dataclass
class Answer:
    """How a request is answered."""

    status: int = 200
    tokens: int = 3
    gap: float = 0.0
    """Seconds between two events of a stream."""
    delay: float = 0.0
    """Seconds before the answer begins."""
    break_after: int | None = None
    """The connection breaks after so many events; 0 or less: before the head."""
    broken_by: Literal["close", "reset", "silence"] = "close"
    usage: bool = True
    body: bytes | None = None
    headers: dict[str, str] = field(default_factory=dict)
    raw: bytes | None = None
    """The whole answer as it goes over the wire, head and all; the connection stays open."""
    events: list[bytes] | None = None
    """The pieces of a stream, as they go over the wire; instead of `tokens`."""
    permits: threading.Semaphore | None = None
    """A plain answer takes one before it begins, a stream before each event but the first: the test says
    when."""


@dataclass
class Received:
    """One request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    connection: int
    raw_head: bytes
    sent: bytes = b""
    """Body bytes of the answer."""
    closed_at: float | None = None
    """When the other side closed before the answer was complete."""

    @property
    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)


def held() -> threading.Semaphore:
    """Permits for `Answer.permits`, none as yet."""
    return threading.Semaphore(0)


def event(text: str, **more: Any) -> bytes:
    """One event of a chat stream."""
    document = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}],
        **more,
    }
    return b"data: " + json.dumps(document).encode() + b"\n\n"


class Upstream:
    """A server on a free port of loopback, in a thread of its own."""

    def __init__(self, name: str, context: ssl.SSLContext | None = None) -> None:
        self.name = name
        self.context = context
        self.answer: Answer | Callable[[Received], Answer] = Answer()
        self.script: list[Answer] = []
        """Answers of the next requests; then `answer` again."""
        self.received: list[Received] = []
        self.look = Answer(status=404)
        """Answer to a gateway that asks whether it is alive."""
        self.looks: list[Received] = []
        """What gateways asked for that, which is no request of a client."""
        self.connections = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._writers: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._ready = threading.Event()
        self._thread.start()
        assert self._ready.wait(PATIENCE)

    def _run(self) -> None:
        loop = self._loop
        asyncio.set_event_loop(loop)
        loop.run_until_complete(self._listen())
        self._ready.set()
        loop.run_forever()
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(
            self._serve, "127.0.0.1", self.port, ssl=self.context, limit=2**27, reuse_address=True
        )
        self.port = self._server.sockets[0].getsockname()[1]

    def _call(self, work: Callable[[], Any]) -> None:
        done = threading.Event()

        def run() -> None:
            work()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(PATIENCE)

    def crash(self) -> None:
        """Stops listening and resets every connection, as a process that dies."""

        def work() -> None:
            if self._server:
                self._server.close()
                self._server = None
            for writer in list(self._writers):
                _reset(writer)

        self._call(work)

    def restart(self) -> None:
        """Listens again on the same port."""
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(PATIENCE)

    def stop(self) -> None:
        """Ends the thread."""
        self.crash()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        assert not self._thread.is_alive()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        number = self.connections
        self._writers.add(writer)
        early = b""
        try:
            while True:
                received = await _read(reader, number, early)
                if received is None:
                    break
                if received.headers.get("user-agent") == "tokenweir":
                    self.looks.append(received)
                    answer = self.look
                else:
                    self.received.append(received)
                    answer = self._next(received)
                watcher = asyncio.ensure_future(_watch(reader, received))
                try:
                    alive = await self._reply(answer, received, writer)
                finally:
                    early = await _unwatch(watcher)
                if not alive or received.headers.get("connection", "").lower() == "close":
                    break
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._writers.discard(writer)
            with contextlib.suppress(Exception):
                writer.close()

    def _next(self, received: Received) -> Answer:
        if self.script:
            return self.script.pop(0)
        return self.answer(received) if callable(self.answer) else self.answer

    async def _reply(self, answer: Answer, received: Received, writer: asyncio.StreamWriter) -> bool:
        if answer.delay:
            await asyncio.sleep(answer.delay)
        if answer.break_after is not None and answer.break_after <= 0:
            return await _break(answer, writer)
        if answer.raw is not None:
            writer.write(answer.raw)
            await writer.drain()
            return True
        streamed = received.method == "POST" and answer.status == 200 and _wants_stream(received)
        if not streamed or answer.body is not None:
            body = self._body(answer, received) if answer.body is None else answer.body
            await _permit(answer)
            await _head(writer, answer, "application/json", f"Content-Length: {len(body)}")
            if answer.break_after is not None:
                writer.write(body[: answer.break_after])
                await writer.drain()
                return await _break(answer, writer)
            received.sent += body
            writer.write(body)
            await writer.drain()
            return True
        await _head(writer, answer, "text/event-stream", "Transfer-Encoding: chunked")
        for k, piece in enumerate(self._pieces(answer)):
            if answer.break_after is not None and k >= answer.break_after:
                return await _break(answer, writer)
            if k:
                await asyncio.sleep(answer.gap)
                await _permit(answer)
            received.sent += piece
            writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            await writer.drain()
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    def _body(self, answer: Answer, received: Received) -> bytes:
        if answer.status >= 400:
            error = {"message": f"{self.name} says {answer.status}", "type": "x", "code": answer.status}
            return json.dumps({"error": error}).encode()
        document: dict[str, Any] = {
            "id": "cmpl-1",
            "object": "chat.completion",
            "server": self.name,
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "t" * answer.tokens},
                    "finish_reason": "stop",
                }
            ],
        }
        if answer.usage:
            document["usage"] = {"prompt_tokens": 7, "completion_tokens": answer.tokens, "total_tokens": 0}
        return json.dumps(document).encode()

    def _pieces(self, answer: Answer) -> list[bytes]:
        if answer.events is not None:
            return answer.events
        pieces = [event(f"t{k}") for k in range(answer.tokens)]
        last: dict[str, Any] = {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        if answer.usage:
            last["usage"] = {"prompt_tokens": 7, "completion_tokens": answer.tokens, "total_tokens": 0}
        return [*pieces, b"data: " + json.dumps(last).encode() + b"\n\n", b"data: [DONE]\n\n"]


async def _permit(answer: Answer) -> None:
    while True:
        if answer.permits is None or answer.permits.acquire(blocking=False):
            return
        await asyncio.sleep(0.002)


def _wants_stream(received: Received) -> bool:
    with contextlib.suppress(ValueError):
        return bool(json.loads(received.body).get("stream"))
    return False


async def _head(writer: asyncio.StreamWriter, answer: Answer, content_type: str, framing: str) -> None:
    lines = [f"HTTP/1.1 {answer.status} X", f"Content-Type: {content_type}", framing]
    lines += [f"{name}: {value}" for name, value in answer.headers.items()]
    writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
    await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    raw = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


async def _break(answer: Answer, writer: asyncio.StreamWriter) -> bool:
    if answer.broken_by == "silence":
        await asyncio.sleep(600)
    if answer.broken_by == "reset":
        _reset(writer)
    return False


async def _watch(reader: asyncio.StreamReader, received: Received) -> bytes:
    """Notes when the other side closes during the answer; else returns the first byte of its next request."""
    with contextlib.suppress(ConnectionError):
        early = await reader.read(1)
        if early:
            return early
    received.closed_at = time.monotonic()
    return b""


async def _unwatch(watcher: asyncio.Task[bytes]) -> bytes:
    watcher.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        return await watcher
    return b""


async def _read(reader: asyncio.StreamReader, connection: int, early: bytes) -> Received | None:
    try:
        head = early + await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        return None
    lines = head.decode("latin-1").split("\r\n")
    method, path, _ = lines[0].split(" ", 2)
    headers: dict[str, str] = {}
    for line in lines[1:]:
        if line:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(method, path, headers, body, connection, head)
