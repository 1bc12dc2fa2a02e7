"""Fixtures of the request path: a rendered gateway before scripted upstreams."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import RedisServer
from tests.integration.upstream import Upstream
from tokenweir.contract.records import Backend


@pytest.fixture
def start_upstream() -> Iterator[Callable[..., Upstream]]:
    """Starts a scripted upstream: `start_upstream("gpu-a")`."""
    started: list[Upstream] = []

    def start(name: str, **options: Any) -> Upstream:
        upstream = Upstream(name, **options)
        started.append(upstream)
        return upstream

    yield start
    for upstream in started:
        upstream.stop()


@pytest.fixture
def start_gateway(tmp_path: Path, redis_server: RedisServer) -> Iterator[Callable[..., Gateway]]:
    """Starts a gateway that has seen a snapshot of these backends: `start_gateway([backend(u)], workers=2)`.

    `settings` are those that it follows; what else is named goes into its configuration. One sidecar leads at
    a time: the test's publishing goes on from the gateway that was started last.
    """
    started: list[Gateway] = []

    def start(
        fleet: Sequence[Backend] = (),
        settings: dict[str, Any] | None = None,
        policy: str = "predictive",
        name: str = "gateway",
        **config: Any,
    ) -> Gateway:
        gateway = Gateway(tmp_path / name, redis_server.port, **config)
        for earlier in started:
            earlier.silence()
            gateway.sequence, gateway.version = earlier.sequence, earlier.version
        started.append(gateway)
        gateway.configure(wait=False, **{"models": [{"name": "llama"}], **(settings or {})})
        gateway.publish(*fleet, wait=False, policy=policy)
        gateway.start()
        gateway.wait_for("settings", gateway.version)
        gateway.wait_for("snapshot", gateway.sequence)
        return gateway

    yield start
    for gateway in started:
        gateway.stop()
        log = gateway.error_log()
        assert not any(words in log for words in ("aborted", "failed to run", "attempt to", "[emerg]")), log


@pytest.fixture
def upstream(start_upstream: Callable[..., Upstream]) -> Upstream:
    """The one upstream `gpu-a`."""
    return start_upstream("gpu-a")


@pytest.fixture
def gateway(start_gateway: Callable[..., Gateway], upstream: Upstream) -> Gateway:
    """A gateway of two workers before `upstream`, which serves the model `llama`."""
    return start_gateway([backend(upstream)])


@pytest.fixture
def pair(
    start_gateway: Callable[..., Gateway], start_upstream: Callable[..., Upstream]
) -> tuple[Gateway, Upstream, Upstream]:
    """A gateway of one worker before `gpu-a` and `gpu-b`, which take turns."""
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    backends = [backend(first), backend(second)]
    return start_gateway(backends, workers=1, policy="round_robin"), first, second
