"""A session that moves between two backends, and a sidecar that is asked to bring its cache along."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.upstream import Answer, Upstream
from tokenweir.contract.records import Backend, Cost

Start = Callable[..., Gateway]
COST = Cost(prefill=0.5, base=10, per_sequence=0.1, per_kv_token=0.0001)
KV = {"capacity": 100_000, "kv_bytes": 1024, "cost": COST}
ON = {"sessions": {"transfer": {"adapter": "agent", "bandwidth": 1e9, "latency_ms": 5}}}
TEXT = "All work and no play makes Jack a dull boy. " * 400
"""17,600 bytes, some 4,400 tokens: 2.2 s of prefill."""


class Service:
    """What the sidecar of the host answers, scripted."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.answer: bytes | None = b"done 4000 4096000 0\n"
        """None: nothing, ever."""
        self.asked: list[tuple[list[str], str, dict[str, Any]]] = []
        self.closed = 0
        self._socket = socket.socket(socket.AF_UNIX)
        self._connections: list[socket.socket] = []
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        self._socket.bind(str(path))
        self._socket.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                self._connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                words = line.decode().split()
                model, body = stream.read(int(words[6])).decode(), stream.read(int(words[7]))
                self.asked.append((words, model, json.loads(body)))
                if self.answer is not None:
                    connection.sendall(self.answer)
        self.closed += 1

    def stop(self) -> None:
        self._socket.close()
        for connection in self._connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self.path.unlink(missing_ok=True)


class Scene:
    """Two backends; a session that lives on one of them moves when that is loaded."""

    def __init__(self, gateway: Gateway, upstreams: list[Upstream]) -> None:
        self.gateway = gateway
        self.upstreams = {u.name: u for u in upstreams}
        self.messages = [{"role": "user", "content": TEXT}]

    def fleet(self, **changes: dict[str, Any]) -> list[Backend]:
        return [
            backend(u, **{**KV, **changes.get(name.replace("-", "_"), {})})
            for name, u in self.upstreams.items()
        ]

    def ask(self, session: str = "s1", **members: Any) -> str:
        answer = self.gateway.post(
            headers={"X-Session-ID": session}, **({"messages": self.messages} | members)
        )
        assert answer.status_code == 200, answer.text
        self.gateway.settle()
        return str(answer.headers["x-tokenweir-backend"])

    def begin(self) -> tuple[str, str]:
        """The backend where it lives, and the other."""
        home = self.ask()
        return home, next(name for name in self.upstreams if name != home)

    def load(self, name: str, **changes: Any) -> None:
        """That backend is loaded, and only that."""
        self.gateway.publish(*self.fleet(**{name.replace("-", "_"): {"memory": 0.9, **changes}}))

    def seen(self, name: str) -> dict[str, Any]:
        """The body of the last request that a backend got."""
        return dict(json.loads(self.upstreams[name].received[-1].body))

    def outcomes(self, **wanted: float) -> None:
        """Waits until so many moves ended so, and no other way."""
        for outcome, count in wanted.items():
            self.gateway.expect(count, "tokenweir_kv_transfers_total", outcome=outcome, model="llama")
        assert self.gateway.metric("tokenweir_kv_transfers_total") == sum(wanted.values())
        assert self.gateway.inflight() == 0


@pytest.fixture
def start(start_gateway: Start, start_upstream: Callable[..., Upstream]) -> Callable[..., Scene]:
    """Starts a scene: `start(settings)`."""

    def make(settings: dict[str, Any] | None = None, **changes: dict[str, Any]) -> Scene:
        upstreams = [start_upstream(f"gpu-{k}") for k in range(2)]
        for upstream in upstreams:
            upstream.answer = Answer(usage=False)
        fleet = [backend(u, **{**KV, **changes.get(u.name.replace("-", "_"), {})}) for u in upstreams]
        gateway = start_gateway(fleet, settings=ON if settings is None else settings, workers=1)
        return Scene(gateway, upstreams)

    return make


@pytest.fixture
def scene(start: Callable[..., Scene]) -> Scene:
    return start()


@pytest.fixture
def service(scene: Scene) -> Iterator[Service]:
    found = Service(scene.gateway.paths.transfer_socket)
    yield found
    found.stop()
