"""An engine inside the bench that notes to the millisecond when its connections end.

It speaks enough of the OpenAI API and of vLLM's metrics to be one more backend of the fleet. Real engines
notice that a client is gone when they next look; this one is told by the kernel, so it measures the gateway
alone.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

from bench.faults.traffic import MODEL

_TOKEN_S = 0.02
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@dataclass
class Seen:
    """One request as the witness saw it. Times are CLOCK_MONOTONIC in s."""

    began: float
    done: float | None = None
    """When the whole answer was written."""
    closed: float | None = None
    """When the connection ended before that."""


@dataclass
class Witness:
    """What the engine saw: request id -> one entry per beginning."""

    requests: dict[str, list[Seen]] = field(default_factory=dict)
    running: int = 0
    tokens: int = 0

    def metrics(self) -> str:
        """vLLM's names for what the sidecar asks for."""
        values = {
            "vllm:num_requests_running": self.running,
            "vllm:num_requests_waiting": 0,
            "vllm:kv_cache_usage_perc": min(1.0, self.running * 0.01),
            "vllm:generation_tokens_total": self.tokens,
        }
        return "".join(f'{name}{{model_name="{MODEL}"}} {value}\n' for name, value in values.items())


class _Connection(asyncio.Protocol):
    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._buffer = b""
        self._task: asyncio.Task[None] | None = None
        self._seen: Seen | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        if self._seen and self._seen.done is None:
            self._seen.closed = time.monotonic()
        if self._task:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        line, *lines = head.decode("latin-1").split("\r\n")
        pairs = (each.partition(":") for each in lines)
        headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
        length = int(headers.get("content-length", "0"))
        if len(rest) < length:
            return
        body, self._buffer = rest[:length], rest[length:]
        method, path, _ = line.split(" ", 2)
        if method == "POST":
            self._seen = Seen(began=time.monotonic())
            self._witness.requests.setdefault(headers.get("x-request-id", ""), []).append(self._seen)
            self._task = asyncio.get_running_loop().create_task(self._answer(json.loads(body), self._seen))
        elif path == "/metrics":
            self._whole("text/plain; version=0.0.4", self._witness.metrics().encode())
        elif path == "/v1/models":
            models = {"object": "list", "data": [{"id": MODEL, "object": "model", "max_model_len": 32_768}]}
            self._whole("application/json", json.dumps(models).encode())
        else:
            self._whole("application/json", b"{}")

    def _whole(self, kind: str, body: bytes) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
        self._transport.write(head.encode() + body)

    async def _answer(self, request: dict[str, Any], seen: Seen) -> None:
        count = int(request.get("max_tokens") or 16)
        usage = {"prompt_tokens": 20, "completion_tokens": count, "total_tokens": 20 + count}
        self._witness.running += 1
        try:
            if not request.get("stream"):
                await asyncio.sleep(count * _TOKEN_S)
                message = {"role": "assistant", "content": "word " * count}
                choice = {"index": 0, "message": message, "finish_reason": "length"}
                answer = {"id": "w", "object": "chat.completion", "choices": [choice], "usage": usage}
                self._whole("application/json", json.dumps(answer).encode())
            else:
                self._transport.write(_STREAM_HEAD)
                delta = {"index": 0, "delta": {"content": " word"}, "finish_reason": None}
                for _ in range(count):
                    await asyncio.sleep(_TOKEN_S)
                    self._witness.tokens += 1
                    self._event({"id": "w", "object": "chat.completion.chunk", "choices": [delta]})
                self._event({"id": "w", "object": "chat.completion.chunk", "choices": [], "usage": usage})
                self._chunk(b"data: [DONE]\n\n")
                self._transport.write(b"0\r\n\r\n")
            seen.done = time.monotonic()
        finally:
            self._witness.running -= 1

    def _event(self, document: dict[str, Any]) -> None:
        self._chunk(b"data: " + json.dumps(document).encode() + b"\n\n")

    def _chunk(self, data: bytes) -> None:
        self._transport.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")


async def serve(witness: Witness, port: int) -> asyncio.Server:
    """Start the engine on a port of the loopback interface."""
    loop = asyncio.get_running_loop()
    return await loop.create_server(lambda: _Connection(witness), "127.0.0.1", port, backlog=1024)
