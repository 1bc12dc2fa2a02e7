"""`python -m bench.telemetry.engines --count N --port P`: N engines, each at an address of its own of the
loopback network, and their hosts' exporters, in one process that costs little."""

from __future__ import annotations

import argparse
import asyncio
import json
from functools import partial

from bench.telemetry.pages import MODEL, exporter_pages, vllm_pages

PAGES_MADE = 8
"""Different sequences of pages; engines share them, each at a place of its own."""
MODELS = json.dumps(
    {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "owned_by": "vllm", "max_model_len": 16_384}],
    }
).encode()


def address(number: int) -> str:
    """Where engine `number` is."""
    return f"127.1.{number // 250}.{number % 250 + 1}"


def _answer(body: bytes, kind: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nServer: uvicorn\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
    return head % (kind, len(body)) + body


class Engine(asyncio.Protocol):
    """A connection. Every look sees the next state."""

    def __init__(self, metrics: list[bytes], exporter: list[bytes], start: int) -> None:
        self._metrics, self._exporter, self._turn = metrics, exporter, start
        self._rest = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._rest += data
        while b"\r\n\r\n" in self._rest:
            request, _, self._rest = self._rest.partition(b"\r\n\r\n")
            path = request.split(b" ", 2)[1]
            self._turn += 1
            if path == b"/metrics":
                body = self._metrics[self._turn % len(self._metrics)]
            elif path == b"/dcgm":
                body = self._exporter[self._turn % len(self._exporter)]
            elif path == b"/v1/models":
                body = _answer(MODELS, b"application/json")
            else:
                body = _answer(b"", b"text/plain")
            self._transport.write(body)  # type: ignore[attr-defined]


async def serve(count: int, port: int) -> None:
    """Serve until killed; a line says that all are there."""
    text = b"text/plain; version=0.0.4; charset=utf-8"
    metrics = [[_answer(page, text) for page in vllm_pages(seed)] for seed in range(PAGES_MADE)]
    exporter = [_answer(page, text) for page in exporter_pages(0)]
    loop = asyncio.get_running_loop()
    for number in range(count):
        made = partial(Engine, metrics[number % PAGES_MADE], exporter, number)
        await loop.create_server(made, address(number), port)
    size = sum(len(page) for pages in metrics for page in pages) // (PAGES_MADE * len(metrics[0]))
    print(json.dumps({"page_bytes": size, "exporter_bytes": len(exporter[0])}), flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, required=True)
    parser.add_argument("--port", type=int, required=True)
    options = parser.parse_args()
    asyncio.run(serve(options.count, options.port))


if __name__ == "__main__":
    main()
