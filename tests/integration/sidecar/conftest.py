"""Sidecars, in this process or as processes of their own, on a real Redis under the ACL that is
shipped."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis
import yaml

from sidecar import app
from sidecar.control_plane import ControlPlane
from tests.integration.servers import PATIENCE, ROOT, RedisServer
from tests.integration.sidecar.engine import FakeEngine
from tests.ports import free_port
from tokenweir.contract import names

PASSWORD = "only-for-this-test"


def shipped_acl() -> list[str]:
    """The rules of the user `sidecar` in the ACL file that is shipped, without its password."""
    for line in (ROOT / "deploy/redis/users.acl").read_text().splitlines():
        if line.startswith("user sidecar on "):
            return [rule for rule in line.split()[3:] if not rule.startswith("#")]
    raise AssertionError("the ACL file has no user `sidecar`")


@pytest.fixture
def store(redis_server: RedisServer) -> Iterator[redis.Redis]:
    """A client with all rights; the sidecars get the user `sidecar`."""
    client = redis_server.client()
    add_user(client)
    yield client
    client.close()


def add_user(client: redis.Redis) -> None:
    """Make the shipped user, on a Redis that has just started."""
    client.execute_command("ACL", "SETUSER", "sidecar", "on", f">{PASSWORD}", *shipped_acl())


@pytest.fixture
def engines() -> Iterator[Callable[..., FakeEngine]]:
    """Starts engines: `engines(model="m")`."""
    started: list[FakeEngine] = []

    def start(**members: Any) -> FakeEngine:
        started.append(FakeEngine(**members))
        return started[-1]

    yield start
    for engine in started:
        engine.frozen = False
        engine.stop()


@pytest.fixture
def write_config(tmp_path: Path, redis_server: RedisServer, store: redis.Redis) -> Callable[..., Path]:
    """Writes a tokenweir.yaml into a folder of its own: `write_config("one", backends=[...])`."""

    def write(name: str, **members: Any) -> Path:
        folder = tmp_path / name
        folder.mkdir(exist_ok=True)
        (folder / "redis.password").write_text(PASSWORD)
        document = {
            "redis": {
                "port": redis_server.port,
                "sidecar_user": "sidecar",
                "sidecar_password_file": "redis.password",
            },
            "admin": {"port": free_port()},
            "telemetry": {"interval": "100ms", "timeout": "500ms"},
        } | members
        path = folder / "tokenweir.yaml"
        path.write_text(yaml.safe_dump(document))
        return path

    return write


class Sidecar:
    """A sidecar in this process, with a client of its admin API."""

    def __init__(self, path: Path) -> None:
        self.plane = ControlPlane(path, environment={})
        transport = httpx.ASGITransport(app=app.create(self.plane), client=("127.0.0.1", 1))
        self.http = httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8081")

    async def state(self, backend_id: str) -> str:
        return str((await self.http.get(f"/api/backends/{backend_id}")).json().get("state"))


@pytest.fixture
async def start_sidecar(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[..., Any]]:
    """Starts a sidecar in this process: `await start_sidecar(path)`; all are stopped in the end."""
    # A gateway's folder that only root can enter would be moved out of the test's own.
    monkeypatch.setattr("tokenweir.render.paths.reachable", lambda _: True)
    started: list[Sidecar] = []

    async def start(path: Path) -> Sidecar:
        sidecar = Sidecar(path)
        started.append(sidecar)
        await sidecar.plane.start()
        return sidecar

    yield start
    for sidecar in started:
        await sidecar.http.aclose()
        await sidecar.plane.stop()


class Process:
    """A sidecar as a process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.port = yaml.safe_load(path.read_text())["admin"]["port"]
        self.log = path.with_name("sidecar.log")
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TOKENWEIR_")}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sidecar", "--config", str(path)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
                env=environment,
            )

    def signal(self, number: int) -> None:
        self.process.send_signal(number)

    def fleet(self) -> dict[str, Any] | None:
        try:
            answer = httpx.get(f"http://127.0.0.1:{self.port}/api/fleet", timeout=1)
        except httpx.HTTPError:
            return None
        return dict(answer.json())

    def leads(self) -> bool:
        fleet = self.fleet()
        return bool(fleet and fleet["leading"] and fleet["sequence"])


@pytest.fixture
def start_process() -> Iterator[Callable[[Path], Process]]:
    """Starts sidecar processes; all are killed in the end."""
    started: list[Process] = []

    def start(path: Path) -> Process:
        started.append(Process(path))
        return started[-1]

    yield start
    for one in started:
        one.signal(signal.SIGCONT)
        one.process.kill()
        one.process.wait()


def snapshot(store: redis.Redis) -> dict[str, Any]:
    """The published snapshot; empty before the first."""
    text = store.get(names.SNAPSHOT)
    return dict(json.loads(str(text))) if text else {}


def backend(store: redis.Redis, backend_id: str) -> dict[str, Any]:
    """One backend of the published snapshot."""
    rows = snapshot(store).get("backends", [])
    return next((dict(row) for row in rows if row["id"] == backend_id), {})


STANDSTILL_S = 0.05


async def until(
    condition: Callable[[], Any], seconds: float = PATIENCE, what: str = "the condition"
) -> float:
    """Waits until `condition()`, or what it awaits, is true; returns the seconds that it took.

    A sidecar in this process shares its loop with this wait. Where the wait comes round late, the machine
    stood still for both, and only the first `STANDSTILL_S` of it count.
    """
    began = last = time.monotonic()
    took = 0.0
    while True:
        value = condition()
        if asyncio.iscoroutine(value):
            value = await value
        now = time.monotonic()
        took += min(now - last, STANDSTILL_S)
        last = now
        if value:
            return took
        assert now - began < seconds, f"{what} did not come true in {seconds} s"
        await asyncio.sleep(0.01)


async def quickest(attempt: Callable[[], Awaitable[float]], enough: float, attempts: int = 5) -> float:
    """As `servers.quickest`, of what is awaited."""
    best = await attempt()
    for _ in range(attempts - 1):
        if best < enough:
            break
        best = min(best, await attempt())
    return best
