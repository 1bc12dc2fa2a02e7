"""Fixtures that run real servers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.servers import Nginx, RedisServer


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[RedisServer]:
    """An empty Redis of this test's own."""
    server = RedisServer(tmp_path / "redis").start()
    yield server
    server.stop()


@pytest.fixture
def start_nginx(tmp_path: Path) -> Iterator[Callable[..., Nginx]]:
    """Starts an nginx: `start_nginx(http, main=..., workers=...)`; all are stopped in the end."""
    started: list[Nginx] = []

    def start(http: str, name: str = "nginx", **options: object) -> Nginx:
        server = Nginx(tmp_path / name, http, **options)  # type: ignore[arg-type]
        started.append(server)
        return server.start()

    yield start
    for server in started:
        server.stop()
