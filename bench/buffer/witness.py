"""A gateway before one scripted backend that takes so many requests at a time, and notes which came when."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import redis.asyncio as redis

from bench.servers import gateway, ports
from bench.servers.redis import Redis
from tokenweir.contract import names
from tokenweir.contract.records import Backend, Cost, ModelSettings, QueueLimits, Settings, Snapshot, State

MODEL = "m"
ANSWER = b'{"choices":[],"usage":{"prompt_tokens":4,"completion_tokens":4,"total_tokens":8}}'


@dataclass
class Witness:
    """The backend. Times are CLOCK_MONOTONIC in s."""

    delay: float = 0.0
    """How long a request takes, s."""
    came: list[tuple[float, str]] = field(default_factory=list)
    """When which request came."""
    ended: list[float] = field(default_factory=list)
    """When an answer was written."""
    first: asyncio.Event = field(default_factory=asyncio.Event)
    """Set once a request came."""
    open: asyncio.Event = field(default_factory=asyncio.Event)
    """Nothing is answered until it is set."""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Handle one connection."""
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                pairs = (line.partition(":") for line in head.split("\r\n")[1:] if line)
                headers = {name.lower(): value.strip() for name, _, value in pairs}
                await reader.readexactly(int(headers.get("content-length", "0")))
                self.came.append((time.monotonic(), headers.get("x-request-id", "")))
                self.first.set()
                await self.open.wait()
                await asyncio.sleep(self.delay)
                writer.write(
                    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
                    % (len(ANSWER), ANSWER)
                )
                await writer.drain()
                self.ended.append(time.monotonic())
        writer.close()


@dataclass
class Stage:
    """What runs."""

    witness: Witness
    gateway: gateway.Gateway


async def _publish(client: redis.Redis, backend: Backend, queue: dict[str, Any]) -> None:
    sequence = 0
    while True:
        sequence += 1
        snapshot = Snapshot(
            fence=1,
            sequence=sequence,
            time_ms=int(time.time() * 1000),
            backends=[backend],
            queue=QueueLimits(**queue),
        )
        with contextlib.suppress(redis.RedisError):
            await client.set(names.SETTINGS, Settings(version=1, models=[ModelSettings(name=MODEL)]).dump())
            await client.set(names.SNAPSHOT, snapshot.dump())
        await asyncio.sleep(names.SNAPSHOT_EVERY_MS / 1000)


@contextlib.asynccontextmanager
async def stage(
    folder: Path, *, concurrency: int, delay: float = 0.0, workers: int = 2, **queue: Any
) -> AsyncIterator[Stage]:
    """Start Redis, the backend and a gateway; first come, first served unless told otherwise."""
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    witness = Witness(delay=delay)
    port = ports.free_ports(1)[0]
    server = await asyncio.start_server(witness.serve, "127.0.0.1", port, backlog=1024)
    backend = Backend(
        id="witness",
        host="127.0.0.1",
        port=port,
        host_header=f"127.0.0.1:{port}",
        models={MODEL: MODEL},
        state=State.READY,
        concurrency=concurrency,
        cost=Cost(prefill=0.01, base=10, per_sequence=0.1, per_kv_token=1e-5),
    )
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(await asyncio.to_thread(Redis, folder / "redis"))
        client = redis.Redis(port=store.port, socket_timeout=2)
        limits = {
            "order": "fifo",
            "max_waiting": 100_000,
            "max_wait_ms": 600_000,
            "max_bytes": 2**30,
            **queue,
        }
        publishing = asyncio.create_task(_publish(client, backend, limits))
        try:
            configuration = gateway.write_configuration(
                folder,
                {
                    "listen": {"workers": workers},
                    "redis": {"port": store.port},
                    "gateway_id": "gw-witness",
                    "limits": {"connections": 32_768},
                    "state_dir": str(folder / "state"),
                },
            )
            served = stack.enter_context(await asyncio.to_thread(gateway.Gateway, configuration, folder))
            await asyncio.to_thread(served.wait_ready)
            yield Stage(witness, served)
        finally:
            publishing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await publishing
            server.close()
            await client.aclose()
