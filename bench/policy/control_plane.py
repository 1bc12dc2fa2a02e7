"""The sidecar in the simulator: its own classes make of what telemetry shows the snapshot that the gateway
reads, with states and ramps, fitted costs, the margin after an out-of-memory, and running figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.policy.routing import Reading
from bench.policy.server import Server
from emulator.engine import Exhaustion
from sidecar.control.cost import CostEstimate
from sidecar.control.hardware import Hardware
from sidecar.control.margin import Margin
from sidecar.control.ramp import Ramp, admitted
from sidecar.control.scores import scores
from sidecar.learning.lengths import Figures, Lengths
from sidecar.queue_limits import queue_limits
from sidecar.telemetry.readings import Record
from tokenweir.config.control import RampConfig
from tokenweir.config.models import Config
from tokenweir.contract.records import Policy
from tokenweir.contract.snapshot import PolicySettings

STATS_EVERY_MS = 1000.0
ENGINES = {Exhaustion.PREEMPT: "vllm", Exhaustion.ABORT: "llamacpp", Exhaustion.CRASH: ""}
"""What telemetry calls engines of each kind; nothing is known of those that crash."""


class ControlPlane:
    """What one sidecar knows and publishes. `policy`: the one that decides; `thresholds` replace its
    settings; `fit`: whether costs are fitted, or stay as the facts say; `ramp`: whether late ones
    ramp."""

    def __init__(
        self,
        servers: Sequence[Server],
        policy: str,
        thresholds: dict[str, float] | None,
        *,
        fit: bool = True,
        ramp: bool = True,
    ) -> None:
        self.servers = servers
        self.lengths = Lengths()
        self.margin = Margin()
        self._settings = PolicySettings(**(thresholds or {})).model_dump()
        # What is no policy of the configuration, but what others fade to, waits as under the default.
        named = Policy(policy) if policy in list(Policy) else Policy.PREDICTIVE
        self._queue = queue_limits(Config(policy=named)).model_dump(mode="json")
        self._stats_at = 0.0
        self._fit = fit
        self._hardware = [_hardware(server) for server in servers]
        self._costs = [CostEstimate() for _ in servers]
        for estimate, known in zip(self._costs, self._hardware, strict=True):
            estimate.of(known)
        self._ready = [server.up for server in servers]
        self._ramps = [Ramp() for _ in servers]
        self._ramp_config = RampConfig(enabled=ramp)
        self._admit = [1.0] * len(servers)

    def snapshot(self, readings: Sequence[Reading], now: float) -> dict[str, Any]:
        """The document `tw:snapshot`."""
        return {
            "schema": 1,
            "fence": 1,
            "sequence": 1,
            "time_ms": 1,
            "thresholds": self._settings | {"z": self.z(now)},
            "queue": self._queue,
            "backends": [self._backend(i, reading) for i, reading in enumerate(readings)],
        }

    def _backend(self, i: int, reading: Reading) -> dict[str, Any]:
        low, high = scores(reading.kv)
        server = self.servers[i]
        return {
            "id": f"s{i}",
            "host": "10.0.0.1",
            "port": 8000,
            "models": {"m": "m"},
            "state": "ready" if self._ready[i] else "down",
            "admit": self._admit[i],
            "memory": reading.kv if self._ready[i] else None,
            "low": low,
            "high": high,
            "capacity": server.capacity,
            "engine": ENGINES[server.spec.kind],
            "cost": self._costs[i].of(self._hardware[i])[0].model_dump(),
        }

    def z(self, now: float) -> float:
        """The margin, in standard deviations."""
        return self.margin.z(self._settings["z"], now)

    def observe(self, readings: Sequence[Reading], now: float, hurry: bool) -> bool:
        """A tick. `hurry`: whether requests wait. Whether there is more to publish than the readings."""
        changed = self._observe_states(readings, now, hurry)
        if self._fit:
            for server, reading, estimate in zip(self.servers, readings, self._costs, strict=True):
                if reading.engine is not None:
                    estimate.observe(Record(engine=reading.engine), server.capacity, now)
        return changed or self._fit

    def figures(self, now: float) -> Figures | None:
        """Running figures of completions, when they are due and there are any."""
        if now < self._stats_at:
            return None
        self._stats_at = now + STATS_EVERY_MS
        return self.lengths.figures()

    def _observe_states(self, readings: Sequence[Reading], now: float, hurry: bool) -> bool:
        """Who is ready, and who ramps."""
        changed = False
        for i, reading in enumerate(readings):
            if reading.up != self._ready[i]:
                self._ready[i] = reading.up
                changed = True
                if reading.up and len(self.servers) > 1:
                    self._ramps[i].begin(self._ramp_config, now)
            elif self._ramps[i].going_on:
                self._ramps[i].update(self._ramp_config, now, None, hurry)
                changed = True
        if changed:
            self._admit = admitted([ramp.share for ramp in self._ramps])
        return changed


def _hardware(server: Server) -> Hardware:
    spec = server.spec
    precision = spec.precision if spec.told is None else spec.told
    return Hardware(spec.gpu, spec.model, precision, 1)
