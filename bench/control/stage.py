"""The stage of one scenario: Redis, sidecars, a gateway of its own around the fleet, and its clients."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import aiohttp
from redis.asyncio import Redis as Connection

from bench.control.client import Record, Traffic
from bench.control.exporter import Exporter
from bench.control.fleet import FALLBACK_MODEL, FRAGILE, MODEL, SMALL, SPARE, Fleet
from bench.control.neighbours import Neighbours
from bench.control.observer import Observer
from bench.control.orders import SECRET, Orders
from bench.control.tenants import Tenants
from bench.servers import gateway, ports
from bench.servers.engine import Engine
from bench.servers.redis import Redis
from bench.servers.sidecar import Sidecar
from sidecar import tasks

GATEWAY: Final = "bench"
SLACK_S: Final = 0.05
LOOK_S: Final = 0.01


@dataclass(frozen=True, slots=True)
class Setup:
    """What a scenario's stage is made of."""

    config: Mapping[str, Any] = field(default_factory=dict)
    """Sections of `tokenweir.yaml` beside the fleet."""
    actuators: bool = False
    exporters: bool = False
    fallback: bool = False
    spare: bool = False
    fragile: bool = False
    """Whether the engine that dies of want of memory is among them."""
    sidecars: int = 1
    rate: float = 12.0
    """Requests per second."""
    output: tuple[int, int] = (10, 40)
    level: float = 0.0
    """Memory use of the engines when the sidecar starts: requests from elsewhere."""


@dataclass(frozen=True, slots=True)
class Blow:
    """An engine that was made to fail. What was in flight there, or came until it was out of rotation, is not
    held against the product."""

    engine: str
    at: float
    until: float


class Stage:
    """Everything that a scenario reaches for. Times are CLOCK_MONOTONIC in s."""

    def __init__(self, setup: Setup, fleet: Fleet, folder: Path, seed: int) -> None:
        self.setup = setup
        self.fleet = fleet
        self.engines = fleet.engines
        self.blows: list[Blow] = []
        self.orders = Orders(fleet.engines)
        filled = {
            name: fleet.engines[name] for name in (*fleet.active, *([FRAGILE] if setup.fragile else []))
        }
        self.tenants = Tenants(filled, seed)
        self.exporter = Exporter({name: engine.url for name, engine in fleet.engines.items()})
        self._folder = folder
        self._seed = seed
        self._stack = contextlib.AsyncExitStack()

    async def __aenter__(self) -> Stage:
        try:
            await self._start()
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _start(self) -> None:
        self.redis = self._stack.enter_context(Redis(self._folder / "redis"))
        await self.orders.start()
        self._stack.push_async_callback(self.orders.stop)
        await self.exporter.start()
        self._stack.push_async_callback(self.exporter.stop)
        configurations = [self._configuration(number) for number in range(self.setup.sidecars)]
        made = asyncio.create_task(
            asyncio.to_thread(gateway.Gateway, configurations[0], configurations[0].parent)
        )
        self.tenants.level = self.setup.level
        await self.tenants.start()
        self._stack.push_async_callback(self.tenants.stop)
        await self.until(lambda: self.tenants.fleet_use >= 0.9 * self.setup.level, 30)
        self.gateway, self.sidecars = await asyncio.gather(
            made,
            asyncio.gather(*(asyncio.to_thread(Sidecar, path, path.parent) for path in configurations)),
        )
        for server in (self.gateway, *self.sidecars):
            self._stack.enter_context(server)
        await asyncio.to_thread(self.gateway.wait_ready)
        self.connection = Connection(port=self.redis.port, socket_timeout=0.5, socket_connect_timeout=0.5)
        self._stack.push_async_callback(self.connection.aclose)
        self.observer = Observer(self.connection, GATEWAY)
        self.neighbours = Neighbours()
        watching = [asyncio.create_task(one.run()) for one in (self.observer, self.neighbours)]
        # Before the connection is closed, which may swallow a cancellation that comes with it.
        self._stack.push_async_callback(tasks.cancel, watching)
        await self.until(lambda: bool(self.observer.looks) and self._all_ready(), 20)
        self.observer.looks[:] = self.observer.looks[-1:]
        self.traffic = Traffic(self.gateway.port, self.setup.rate, self._seed, output=self.setup.output)
        await self.traffic.start()
        self._stack.push_async_callback(self.traffic.stop, 5)

    def _all_ready(self) -> bool:
        return all(self.observer.last.ready(name) for name in self.fleet.active)

    def _configuration(self, number: int) -> Path:
        folder = self._folder / f"part-{number}"
        folder.mkdir(parents=True)
        folder.chmod(0o755)
        (folder / "webhook.secret").write_text(SECRET)
        document: dict[str, Any] = {
            "listen": {"workers": 1},
            "admin": {"port": ports.free_ports(1)[0]},
            "redis": {"port": self.redis.port},
            "gateway_id": GATEWAY,
            "models": [{"name": MODEL, "fallback": FALLBACK_MODEL}],
            "backends": [
                self._backend(name, engine) for name, engine in self.engines.items() if self._in(name)
            ],
            "state_dir": str(folder / "state"),
            **self.setup.config,
        }
        if not self.setup.fallback:
            document["models"] = [{"name": MODEL}]
        return gateway.write_configuration(folder, document)

    def _in(self, name: str) -> bool:
        asked = {SPARE: self.setup.spare, SMALL: self.setup.fallback, FRAGILE: self.setup.fragile}
        return asked.get(name, True)

    def _backend(self, name: str, engine: Engine) -> dict[str, Any]:
        model = FALLBACK_MODEL if name == SMALL else MODEL
        found: dict[str, Any] = {"id": name, "url": engine.url, "models": [model], "engine": "vllm"}
        found["role"] = {SPARE: "standby", SMALL: "fallback"}.get(name, "active")
        if self.setup.exporters:
            found["dcgm_url"] = self.exporter.url(name)
        if self.setup.actuators:
            hook = {"url": self.orders.url, "secret_file": "webhook.secret"}
            found["actuator"] = {"webhook": hook, "timeout": "20s"}
        return found

    # What scenarios do

    async def until(self, holds: Callable[[], object], seconds: float) -> float | None:
        """Wait until something holds; when that was, or None if it never did."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if holds():
                return time.monotonic()
            await asyncio.sleep(LOOK_S)
        return None

    async def fault(self, engine: str, **parameters: Any) -> float:
        """Order a fault of an engine; returns when."""
        at = time.monotonic()
        await asyncio.to_thread(self.engines[engine].call, "/admin/fault", parameters)
        return at

    async def admin(self, method: str, path: str, sidecar: int = 0) -> Any:
        """Call the admin API."""
        url = f"http://127.0.0.1:{self.sidecars[sidecar].port}{path}"
        async with aiohttp.ClientSession() as http, http.request(method, url) as answer:
            answer.raise_for_status()
            return await answer.json()

    def blow(self, engine: str, at: float, until: float | None) -> None:
        """Note that an engine was made to fail, and when it was out of rotation."""
        self.blows.append(Blow(engine, at, at if until is None else until))

    def out_of_rotation(self, engine: str, since: float) -> float | None:
        """When the engine got no more requests: by the gateway's own signs, or by the snapshot."""
        seen = self.observer.first(lambda look: not look.ready(engine), since)
        own = self.observer.ejected.get(engine)
        return min((at for at in (seen, own) if at is not None and at >= since), default=None)

    # What came of it

    def records(self) -> list[Record]:
        """The requests that ended."""
        return [record for record in self.traffic.records if record.ended]

    def failed_elsewhere(self) -> list[Record]:
        """Failed requests that no failing engine had."""
        return [record for record in self.records() if record.failed and not self._excused(record)]

    def _excused(self, record: Record) -> bool:
        executed = self._executed().get(record.id, set()) | {record.backend}
        return any(
            blow.engine in executed
            and record.ended >= blow.at - SLACK_S
            and record.sent <= blow.until + SLACK_S
            for blow in self.blows
        )

    def _executed(self) -> dict[str, set[str]]:
        found: dict[str, set[str]] = {}
        for name in {blow.engine for blow in self.blows}:
            for request in self.engines[name].executed():
                found.setdefault(request, set()).add(name)
        return found
