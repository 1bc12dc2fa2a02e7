"""The product under overload: Redis, sidecar, gateway of two workers, emulated engines that memory bounds."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from bench.buffer.traffic import KEYS, MODEL
from bench.servers import gateway, ports
from bench.servers.engine import Engine, EngineKind
from bench.servers.redis import Redis
from bench.servers.sidecar import Sidecar

ENGINES = 2
CAPACITY = 3_000
"""KV tokens of an engine: some twenty requests at once."""
SECRET = "bench-{}"
QUEUE: dict[str, Any] = {"max_waiting": 2000}
BREAKER_OFF: dict[str, Any] = {"breaker": {"enabled": False}, "burst": {"enabled": False}}


@dataclass
class Fleet:
    """The running parts."""

    gateway: gateway.Gateway
    sidecar: Sidecar
    configuration: Path

    async def change(self, **sections: Any) -> None:
        """Change the configuration, as an operator does, and wait until the sidecar follows."""
        document = yaml.safe_load(self.configuration.read_text())
        document.update(sections)
        self.configuration.write_text(yaml.safe_dump(document))
        await asyncio.to_thread(self.sidecar.restart)
        await asyncio.to_thread(
            self.sidecar.wait_until, lambda: ports.listening(self.sidecar.port), "ready", 30
        )
        await asyncio.sleep(3)


def authorization(key: str) -> dict[str, str]:
    """The header of one of the keys."""
    return {"Authorization": f"Bearer {SECRET.format(key)}"}


def start(folder: Path, stack: contextlib.ExitStack) -> Fleet:
    """Start everything; `stack` stops it."""
    redis = stack.enter_context(Redis(folder / "redis"))
    kind = EngineKind("A100-80G", MODEL, capacity=CAPACITY)
    engines = [stack.enter_context(Engine(f"engine-{k}", kind, folder)) for k in range(ENGINES)]
    for engine in engines:
        engine.wait_ready()
    configuration = gateway.write_configuration(
        folder,
        {
            "listen": {"workers": 2},
            "admin": {"port": ports.free_ports(1)[0]},
            "redis": {"port": redis.port},
            "gateway_id": "gw-buffer",
            "models": [{"name": MODEL, "facts": MODEL}],
            "backends": [
                {
                    "id": engine.name,
                    "url": engine.url,
                    "models": [MODEL],
                    "engine": "vllm",
                    "gpu": kind.gpu,
                    "kv_capacity": CAPACITY,
                }
                for engine in engines
            ],
            "keys": [
                {"id": key, "sha256": hashlib.sha256(SECRET.format(key).encode()).hexdigest()} for key in KEYS
            ],
            "queue": QUEUE,
            "ramp": {"enabled": False},
            "state_dir": str(folder / "state"),
            **BREAKER_OFF,
        },
    )
    sidecar = stack.enter_context(Sidecar(configuration, folder))
    server = stack.enter_context(gateway.Gateway(configuration, folder))
    server.wait_ready()
    return Fleet(server, sidecar, configuration)
