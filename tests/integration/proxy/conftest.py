"""Fixtures of the request path: a rendered gateway before scripted upstreams."""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.proxy.line import KEYS, Line, as_key
from tests.integration.servers import RedisServer, wait_until
from tests.integration.upstream import Answer, Upstream
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
        # A timer that finds no connection left is run at its next turn.
        lines = [line for line in gateway.error_log().splitlines() if "could not create fake" not in line]
        log = "\n".join(lines)
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


@pytest.fixture
def narrow(start_gateway: Callable[..., Gateway], upstream: Upstream) -> Gateway:
    """A gateway before `upstream`, which takes one request at a time."""
    return start_gateway([backend(upstream, concurrency=1)])


@pytest.fixture
def busy(narrow: Gateway, upstream: Upstream) -> Iterator[Gateway]:
    """A gateway at which every request has to wait: others come all the time."""
    upstream.answer = Answer(delay=0.1)
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            with contextlib.suppress(httpx.TransportError):
                narrow.post(user="load")

    threads = [threading.Thread(target=load) for _ in range(3)]
    for thread in threads:
        thread.start()
    wait_until(lambda: narrow.metric("tokenweir_queue_depth") > 0, what="a queue")
    yield narrow
    stop.set()
    for thread in threads:
        thread.join()


@pytest.fixture
def line(start_gateway: Callable[..., Gateway], upstream: Upstream) -> Line:
    """A line of keys at a gateway of two workers."""
    gateway = start_gateway([backend(upstream, concurrency=1)], {"keys": KEYS})
    return Line(gateway, upstream, **as_key("flood"))


def openssl(*arguments: str, folder: Path) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem and what it signed: engine-a.pem and engine-b.pem, both for engine-c too."""
    folder = tmp_path_factory.mktemp("ca")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    signs = ("-addext", "keyUsage=critical,keyCertSign")  # Python 3.13 asks for it
    openssl(
        "req",
        "-x509",
        *curve,
        "-keyout",
        "ca.key",
        "-out",
        "ca.pem",
        "-subj",
        "/CN=test CA",
        *signs,
        folder=folder,
    )
    for name in ("engine-a", "engine-b"):
        (folder / "ext").write_text(f"subjectAltName=DNS:{name}.test,DNS:engine-c.test,IP:127.0.0.1\n")
        openssl(
            "req",
            *curve[:5],
            "-keyout",
            f"{name}.key",
            "-out",
            "csr",
            "-subj",
            f"/CN={name}.test",
            folder=folder,
        )
        openssl(
            *(
                "x509",
                "-req",
                "-in",
                "csr",
                "-CA",
                "ca.pem",
                "-CAkey",
                "ca.key",
                "-CAcreateserial",
                "-days",
                "2",
            ),
            *("-extfile", "ext", "-out", f"{name}.pem"),
            folder=folder,
        )
    return folder
