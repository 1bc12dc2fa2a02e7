"""A whole Tokenweir that moves caches: emulated engines as processes, a sidecar, a gateway, a Redis."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from sidecar.control_plane import ControlPlane
from tests.integration.proxy.gateway import HTTP, Gateway
from tests.integration.servers import ROOT, RedisServer, wait_until
from tests.ports import free_port

MODEL = "llama-3-8b"
GPU = {"gpu": "T4", "precision": "int4"}
KV_BYTES = 1024
WORDS = "All work and no play makes Jack a dull boy. "
STARTS_S = 120.0
"""torch alone takes seconds to load, on a busy machine many."""


class Engine:
    """An emulated engine; with `kv` it keeps tensors and has an agent."""

    def __init__(self, name: str, folder: Path, kv: bool, *options: str, card: int | None = None) -> None:
        self.name, self.port, self.kv = name, free_port(), kv
        self.log = folder / f"{name}.log"
        command = [sys.executable, "-m", "emulator", "--port", str(self.port), "--gpu", "T4"]
        command += ["--precision", "int4", "--model", MODEL]
        if kv:
            command += ["--kv-bytes", str(KV_BYTES), *options]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        if card is not None:
            environment["CUDA_VISIBLE_DEVICES"] = str(card)
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=environment)

    def ready(self) -> bool:
        """Whether it answers."""
        assert self.process.poll() is None, self.log.read_text()
        with contextlib.suppress(httpx.TransportError):
            started = HTTP.get(f"{self.url}/health").status_code == 200
            return started and (not self.kv or "its agent on" in self.log.read_text())
        return False

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def agent(self) -> str:
        """Where its agent answers."""
        found = re.search(r"its agent on (\S+)", self.log.read_text())
        assert found
        return found[1]

    def counts(self) -> dict[str, int]:
        """What its agent has done."""
        return dict(HTTP.get(f"{self.agent}/kv/counts").json())

    def fault(self, kind: str) -> None:
        """Switch a fault on."""
        HTTP.post(f"{self.url}/admin/fault", json={"kind": kind}).raise_for_status()

    def digests(self, body: dict[str, Any]) -> list[str]:
        """Of the tensors that it keeps of a chat."""
        answer = HTTP.post(f"{self.url}/admin/kv", json={"kind": "chat", "request": body})
        return list(answer.raise_for_status().json()["digests"])

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def stop(self) -> None:
        self.signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()


class Plane:
    """A sidecar in a thread of its own."""

    def __init__(self, path: Path) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.plane: ControlPlane = self.run(self._start(path))

    async def _start(self, path: Path) -> ControlPlane:
        plane = ControlPlane(path, environment={})
        await plane.start()
        return plane

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine in its loop comes to."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    def drain(self, name: str) -> None:
        """Begin to drain a backend."""

        async def drain() -> None:
            self.plane.store.set_draining(name, True)
            self.plane.changed()

        self.run(drain())

    def stop(self) -> None:
        self.run(self.plane.stop())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(20)


class Stack:
    """All of it. A session lives on one of two engines, and moves when that one drains."""

    def __init__(
        self, folder: Path, redis_port: int, engines: list[Engine], document: dict[str, Any]
    ) -> None:
        self.engines = {engine.name: engine for engine in engines}
        path = folder / "tokenweir.yaml"
        common = {
            "models": [MODEL],
            "admin": {"port": free_port()},
            "redis": {"port": redis_port},
            "telemetry": {"interval": "100ms", "timeout": "5s"},
            "ramp": {"start": 1},
            **document,
        }
        path.write_text(yaml.safe_dump(common))
        self.sidecar = Plane(path)
        self.gateway = Gateway(folder / "var" / "gateway", redis_port, workers=1)
        self.gateway.start()
        wait_until(self._serves, what="a gateway that knows its engines")

    def _serves(self) -> bool:
        text = self.gateway.redis.get("tw:snapshot")
        states = {b["id"]: b["state"] for b in json.loads(str(text))["backends"]} if text else {}
        ready = set(states) == set(self.engines) and set(states.values()) == {"ready"}
        return ready and self.gateway.get("/readyz").status_code == 200

    def ask(self, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The engine that answered a chat of the session `s1`, and the answer."""
        answer = self.gateway.post(body=body, headers={"X-Session-ID": "s1", "X-Emulator-Output-Tokens": "4"})
        assert answer.status_code == 200, answer.text
        self.gateway.settle()
        return answer.headers["x-tokenweir-backend"], answer.json()

    def begin(self, topic: str) -> tuple[Engine, Engine, dict[str, Any]]:
        """The session is served for the first time: its engine, the other, the body of its next request."""
        first = {"model": MODEL, "messages": [{"role": "user", "content": f"{topic}. {WORDS * 650}"}]}
        name, answer = self.ask(first)
        assert cached(answer) == 0
        reply = answer["choices"][0]["message"]
        again = {"role": "user", "content": "Go on."}
        other = next(engine for engine in self.engines.values() if engine.name != name)
        return self.engines[name], other, {**first, "messages": [*first["messages"], reply, again]}

    def drain(self, engine: Engine) -> None:
        """Drain an engine, and wait until the gateway knows."""
        self.sidecar.drain(engine.name)

        def drained() -> bool:
            snapshot = json.loads(str(self.gateway.redis.get("tw:snapshot")))
            states = {b["id"]: b["state"] for b in snapshot["backends"]}
            if states[engine.name] != "draining":
                return False
            self.gateway.wait_for("snapshot", snapshot["sequence"])
            return True

        wait_until(drained, what="the drain")

    def outcomes(self, **wanted: float) -> None:
        """Waits until so many moves ended so, and no other way."""
        for outcome, count in wanted.items():
            self.gateway.expect(count, "tokenweir_kv_transfers_total", outcome=outcome)
        assert self.gateway.metric("tokenweir_kv_transfers_total") == sum(wanted.values())
        assert self.gateway.inflight() == 0

    def waited(self, outcome: str) -> float:
        """Seconds that requests waited for moves that ended so."""
        return self.gateway.metric("tokenweir_kv_transfer_seconds_sum", outcome=outcome)

    def stop(self) -> None:
        self.gateway.stop()
        self.sidecar.stop()


def cached(answer: dict[str, Any]) -> int:
    """Tokens that the engine says it had cached."""
    return int(answer["usage"]["prompt_tokens_details"]["cached_tokens"])


@pytest.fixture
def start_engines(tmp_path: Path) -> Iterator[Callable[..., list[Engine]]]:
    """Starts two engines: `start_engines(kv=True)`."""
    started: list[Engine] = []

    def start(*options: str, kv: bool) -> list[Engine]:
        started.extend(Engine(name, tmp_path, kv, *options) for name in ("gpu-a", "gpu-b"))
        for engine in started:
            wait_until(engine.ready, STARTS_S, engine.name)
        return started

    yield start
    for engine in started:
        engine.stop()


@pytest.fixture
def start_stack(
    tmp_path_factory: pytest.TempPathFactory, redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Stack]]:
    """Starts it: `start_stack(engines, transfer, {"gpu-a": {...}})`; the last are the engines' own parts."""
    # The gateway's folder stays in the test's own.
    monkeypatch.setattr("tokenweir.render.paths.reachable", lambda _: True)
    started: list[Stack] = []

    def start(engines: list[Engine], transfer: dict[str, Any], own: dict[str, dict[str, Any]]) -> Stack:
        backends = [
            {"id": e.name, "url": e.url, **GPU, "transfer": {"kv_bytes": KV_BYTES, **own.get(e.name, {})}}
            for e in engines
        ]
        document = {"backends": backends, "sessions": {"transfer": transfer}}
        # A socket's path has 107 bytes at most.
        started.append(Stack(tmp_path_factory.mktemp("t"), redis_server.port, engines, document))
        return started[-1]

    yield start
    for stack in started:
        stack.stop()
        log = stack.gateway.error_log()
        assert not any(words in log for words in ("aborted", "failed to run", "attempt to")), log
