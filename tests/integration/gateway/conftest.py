"""Fixtures of the gateway's shared state."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.integration.gateway.gateway import Gateway, http_block, settings, snapshot
from tests.integration.servers import Nginx, RedisServer


@pytest.fixture
def start_gateway(
    tmp_path: Path, start_nginx: Callable[..., Nginx], redis_server: RedisServer
) -> Callable[..., Gateway]:
    """Starts a gateway that follows the test's Redis: `start_gateway(name, workers=2, redis={...})`."""

    def start(
        name: str = "gw-1",
        workers: int = 2,
        *,
        redis: dict[str, Any] | None = None,
        detached: bool = False,
        extra: str = "",
        poll_ms: int = 100,
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
                    "poll_ms": poll_ms,
                }
            )
        )
        main = f"worker_processes {workers};"
        return Gateway(
            start_nginx(http_block(extra), name=name, main=main, workers=workers, detached=detached)
        )

    return start


class Publish:
    """Publishes settings and a snapshot as a sidecar would: once, or again and again."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        self._sequence = 0

    def __call__(self, fence: int = 1, sequence: int = 1, **changes: Any) -> None:
        self._sequence = sequence
        self._client.set("tw:settings", settings())
        self._client.set("tw:snapshot", snapshot(fence, sequence, **changes))

    @contextmanager
    def again(self, **changes: Any) -> Iterator[None]:
        """Publishes a snapshot twice a second meanwhile, so that it does not become stale."""
        over = threading.Event()

        def beat() -> None:
            while True:
                self(sequence=self._sequence + 1, **changes)
                if over.wait(0.5):
                    return

        beating = threading.Thread(target=beat, daemon=True)
        beating.start()
        try:
            yield
        finally:
            over.set()
            beating.join()


@pytest.fixture
def publish(redis_server: RedisServer) -> Publish:
    """Publishes as a sidecar would."""
    return Publish(redis_server.client())


@pytest.fixture
def gateway(start_gateway: Callable[..., Gateway], publish: Publish) -> Gateway:
    """A gateway of two workers that has seen a snapshot of gpu-a and gpu-b."""
    publish()
    server = start_gateway()
    server.wait_for("settings", 1)
    server.wait_for("snapshot", 1)
    return server
