"""Brings up the product of the faults bench: Redis, sidecar, gateway, emulated engines and the witness."""

from __future__ import annotations

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.faults import witness as witness_engine
from bench.faults.stage import GATEWAY
from bench.faults.traffic import MODEL
from bench.faults.witness import Witness
from bench.servers import gateway, ports
from bench.servers.engine import Engine, EngineKind
from bench.servers.redis import Redis
from bench.servers.sidecar import Sidecar

ENGINES = 6
KIND = EngineKind("A100-80G", speed=0.4)
"""All are equal, so that each has its share of the requests, and slow, so that many are in flight."""
WITNESS = "witness"


@dataclass
class Parts:
    """The running processes."""

    redis: Redis
    sidecar: Sidecar
    gateway: gateway.Gateway
    engines: dict[str, Engine]


async def start(
    folder: Path, stack: contextlib.ExitStack, witness: Witness, say: Callable[[str], None]
) -> Parts:
    """Start everything; `stack` stops it. The gateway has two workers."""
    say(f"starting Redis, {ENGINES} emulated engines, the sidecar and the gateway")
    redis = stack.enter_context(Redis(folder / "redis"))
    engines = {}
    for number in range(ENGINES):
        name = f"engine-{number}"
        engines[name] = stack.enter_context(Engine(name, KIND, folder))
    witness_port = ports.free_ports(1)[0]
    await witness_engine.serve(witness, witness_port)
    for engine in engines.values():
        await asyncio.to_thread(engine.wait_ready)
    backends: list[dict[str, Any]] = [
        {"id": name, "url": engine.url, "models": [MODEL], "engine": "vllm", "gpu": KIND.gpu}
        for name, engine in engines.items()
    ]
    backends.append(
        {
            "id": WITNESS,
            "url": f"http://127.0.0.1:{witness_port}",
            "models": [MODEL],
            "engine": "vllm",
            "gpu": KIND.gpu,
            "kv_capacity": 100_000,
        }
    )
    configuration = gateway.write_configuration(
        folder,
        {
            "listen": {"workers": 2},
            "admin": {"port": ports.free_ports(1)[0]},
            "redis": {"port": redis.port},
            "gateway_id": GATEWAY,
            "models": [{"name": MODEL, "facts": MODEL}],
            "backends": backends,
            "state_dir": str(folder / "state"),
        },
    )
    sidecar = stack.enter_context(await asyncio.to_thread(Sidecar, configuration, folder))
    server = stack.enter_context(await asyncio.to_thread(gateway.Gateway, configuration, folder))
    await asyncio.to_thread(server.wait_ready)
    return Parts(redis, sidecar, server, engines)


def executions(parts: Parts, witness: Witness) -> dict[str, list[str]]:
    """Request id -> the engines that began it, one entry per beginning."""
    found: dict[str, list[str]] = defaultdict(list)
    for name, engine in parts.engines.items():
        for request in engine.executed():
            found[request].append(name)
    for request, seen in witness.requests.items():
        found[request] += [WITNESS] * len(seen)
    return dict(found)
