"""Everything that can be hurt, and the ways to hurt it; each blow notes who can be blamed for it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from redis.asyncio import Redis as Connection

from bench.faults import watch
from bench.faults.accounting import EngineFault, Kind, WorkerKill
from bench.faults.connections import client_ports
from bench.servers import cpu
from bench.servers.engine import Engine
from bench.servers.gateway import Gateway
from bench.servers.process import Process

GATEWAY = "gateway"
EJECTION_S = 20
"""How long an ejection is waited for before it counts as never."""


@dataclass
class Stage:
    """The running product and what was done to it."""

    redis: Process
    sidecar: Process
    gateway: Gateway
    engines: Mapping[str, Engine]
    client: Connection
    source: random.Random
    kills: list[WorkerKill] = field(default_factory=list)
    faults: list[EngineFault] = field(default_factory=list)
    done: list[str] = field(default_factory=list)
    """What was done, in order, with the second of the run."""
    began: float = field(default_factory=time.monotonic)

    def _note(self, what: str) -> None:
        self.done.append(f"{time.monotonic() - self.began:.1f} s: {what}")

    def _workers(self) -> list[int]:
        """Workers that take new connections: those of the newest generation."""
        found = []
        for stat in cpu.tree(self.gateway.pid)[1:]:
            with suppress(OSError):
                title = cpu.command_line(stat.pid)
                if "worker process" in title and "shutting down" not in title:
                    found.append(stat.pid)
        return found

    async def kill_worker(self) -> None:
        """`kill -9` of one nginx worker; it is stopped first, so that what it holds can be read exactly."""
        pid = self.source.choice(self._workers())
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self.kills.append(WorkerKill(time.monotonic(), client_ports(pid, self.gateway.port)))
            os.kill(pid, signal.SIGKILL)
        self._note(f"nginx worker killed with {len(self.kills[-1].ports)} connections")

    async def reload(self) -> None:
        """nginx reload."""
        self.gateway.reload()
        self._note("nginx reloaded")

    async def freeze_redis(self, seconds: float) -> None:
        """Redis stands still, its connections open."""
        self.redis.freeze()
        self._note("Redis frozen")
        await asyncio.sleep(seconds)
        self.redis.thaw()

    async def restart_redis(self, seconds: float) -> None:
        """Redis dies, and comes back empty."""
        self.redis.kill()
        self._note("Redis killed")
        await asyncio.sleep(seconds)
        self.redis.restart()

    async def freeze_sidecar(self, seconds: float) -> None:
        """The sidecar stands still."""
        self.sidecar.freeze()
        self._note("sidecar frozen")
        await asyncio.sleep(seconds)
        self.sidecar.thaw()

    async def restart_sidecar(self, seconds: float) -> None:
        """The sidecar dies and comes back."""
        self.sidecar.kill()
        self._note("sidecar killed")
        await asyncio.sleep(seconds)
        self.sidecar.restart()

    async def _engine(self) -> tuple[str, Engine]:
        """The busiest engine that is well, so that the fault meets requests in flight."""
        well = [name for name in self.engines if not any(fault.open(name) for fault in self.faults)]
        busy = await watch.busiest(self.client, GATEWAY)
        name = max(well, key=lambda each: (busy.get(each, 0), self.source.random()))
        return name, self.engines[name]

    def _begin(self, name: str, kind: Kind) -> EngineFault:
        fault = EngineFault(name, kind, time.monotonic())
        self.faults.append(fault)
        self._note(f"engine {name}: {kind}")
        return fault

    async def crash_engine(self, seconds: float) -> None:
        """An engine is killed, and started again."""
        name, engine = await self._engine()
        fault = self._begin(name, Kind.CRASH)
        engine.kill()
        await asyncio.sleep(seconds)
        engine.restart()
        await asyncio.to_thread(engine.wait_ready)
        fault.ended = time.monotonic()

    async def freeze_engine(self, seconds: float) -> None:
        """An engine stands still: it takes connections and never answers."""
        name, engine = await self._engine()
        fault = self._begin(name, Kind.FREEZE)
        engine.freeze()
        thaw = asyncio.create_task(asyncio.sleep(seconds))
        await watch.until_ejected(self.client, GATEWAY, fault, EJECTION_S)
        await thaw
        engine.thaw()
        fault.ended = time.monotonic()

    async def fail_engine(self, seconds: float) -> None:
        """An engine answers everything with an error at once."""
        name, engine = await self._engine()
        fault = self._begin(name, Kind.FAIL)
        await asyncio.to_thread(engine.fail, True)
        watching = asyncio.create_task(watch.until_ejected(self.client, GATEWAY, fault, seconds))
        await asyncio.sleep(seconds)
        await asyncio.to_thread(engine.fail, False)
        await watching
        fault.ended = time.monotonic()
