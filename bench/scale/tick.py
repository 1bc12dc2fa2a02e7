"""The sidecar's part: one tick over the fleet, without the looks at engines (`bench-telemetry` has these)."""

from __future__ import annotations

import random
import time
from typing import Any

from bench.control.result import quantile
from bench.scale.fleet import MODEL
from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.control.loop import ControlLoop
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import EngineReading, ModelsReading, Total
from tokenweir.config import Config
from tokenweir.contract.records import BackendLoad, Lease, Snapshot

TICK_MS = 500.0


class Sidecar:
    """The decisions of a sidecar over `count` engines that work."""

    def __init__(self, count: int, seed: int) -> None:
        self._source = random.Random(seed)
        listed = [
            {"id": f"engine-{number:04d}", "url": f"http://10.0.{number // 250}.{number % 250 + 1}:8000"}
            for number in range(count)
        ]
        self.config = Config.model_validate({"backends": listed, "models": [{"name": MODEL}]})
        self.gateways = Gateways()
        self.fleet = Fleet(self.gateways)
        self.loop = ControlLoop(self.fleet, self.gateways, lambda _: True, lambda _: 200.0)
        self.fleet.set_models(self.config.models)
        self.fleet.set_members(self.config.backends, set())
        self.now, self.sequence = 0.0, 0
        for member in self.fleet.members.values():
            member.address = member.config.host
            member.record.models = ModelsReading(at=0, source="/v1/models", names=(MODEL,))

    def look(self) -> None:
        """Half a second passes: every engine was looked at, and a gateway has written its lease."""
        self.now += TICK_MS
        self.sequence += 1
        for name, member in self.fleet.members.items():
            running = self._source.randrange(1, 20)
            steps = 40 * self.sequence
            member.record.answered_at = self.now
            member.record.engine = EngineReading(
                at=self.now,
                source="vllm",
                running=running,
                waiting=0,
                kv_use=self._source.uniform(0.1, 0.7),
                capacity=400_000,
                output_tokens=steps * 10.0,
                inter_token=Total(steps * 10.0, steps * 10.0 * 12.0),
                steps=Total(float(steps), steps * 12.0),
            )
            self.fleet.observe(name, Look.OK, "answers", self.now)
        load = BackendLoad(n=10, held=20_000, remaining=2000, variance=1e6)
        lease = Lease(
            id="gateway",
            time_ms=int(self.now),
            sequence=self.sequence,
            backends=dict.fromkeys(self.fleet.members, load),
            arrivals={MODEL: 500 * self.sequence},
        )
        self.lease = lease.dump()

    def tick(self) -> str:
        """Leases, decisions, the snapshot's text."""
        self.gateways.update([self.lease])
        self.loop.leases_read(self.config, self.now)
        self.loop.step(self.config, True, self.now)
        snapshot = Snapshot(
            fence=1,
            sequence=self.sequence,
            time_ms=int(self.now),
            models=self.loop.published(),
            thresholds=self.loop.thresholds(self.config, self.now),
            backends=self.fleet.decide(self.now),
        )
        return snapshot.dump()


def measure(count: int, seed: int, ticks: int) -> dict[str, Any]:
    """CPU time of a tick, and the same by the clock."""
    sidecar = Sidecar(count, seed)
    times, clock = [], []
    size = 0
    for number in range(ticks + 3):
        sidecar.look()
        began, used = time.perf_counter(), time.process_time()
        size = len(sidecar.tick())
        if number >= 3:
            times.append(1000 * (time.process_time() - used))
            clock.append(1000 * (time.perf_counter() - began))
    return {
        "tick_ms_p50": quantile(times, 0.5),
        "tick_ms_p99": quantile(times, 0.99),
        "tick_ms_most": max(times),
        "tick_clock_ms_p50": quantile(clock, 0.5),
        "snapshot_bytes": size,
    }
