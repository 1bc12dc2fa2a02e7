"""Fixtures of the gateway's shared state."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.gateway.gateway import Gateway, http_block, settings, snapshot
from tests.integration.servers import Nginx, RedisServer, wait_until


@pytest.fixture
def start_gateway(
    tmp_path: Path, start_nginx: Callable[..., Nginx], redis_server: RedisServer
) -> Callable[..., Gateway]:
    """Starts a gateway that follows the test's Redis: `start_gateway(name, workers=2, redis={...})`."""

    def start(
        name: str = "gw-1",
        workers: int = 2,
        redis: dict[str, Any] | None = None,
        detached: bool = False,
        extra: str = "",
    ) -> Gateway:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        target = {"host": "127.0.0.1", "port": redis_server.port, "read_ms": 300, "connect_ms": 300}
        (folder / "gateway.json").write_text(
            json.dumps(
                {
                    "gateway_id": name,
                    "state_dir": str(folder),
                    "redis": {**target, **(redis or {})},
                }
            )
        )
        main = f"worker_processes {workers};"
        return Gateway(
            start_nginx(http_block(extra), name=name, main=main, workers=workers, detached=detached)
        )

    return start


@pytest.fixture
def publish(redis_server: RedisServer) -> Callable[..., None]:
    """Publishes settings and a snapshot as a sidecar would."""
    client = redis_server.client()

    def put(fence: int = 1, sequence: int = 1, **changes: Any) -> None:
        client.set("tw:settings", settings())
        client.set("tw:snapshot", snapshot(fence, sequence, **changes))

    return put


@pytest.fixture
def gateway(start_gateway: Callable[..., Gateway], publish: Callable[..., None]) -> Gateway:
    """A gateway of two workers that has seen a snapshot of gpu-a and gpu-b."""
    publish()
    server = start_gateway()
    wait_until(lambda: server.json("state").get("backends"), what="the first snapshot")
    return server
