"""All that is decided for one model: levels, burst mode, the preferred variant, its spares."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sidecar.control.breaker import Breaker
from sidecar.control.burst import Burst
from sidecar.control.drain_rate import DrainRate
from sidecar.control.model_load import BackendUse, Waiting, model_load
from sidecar.control.precision import Precision
from sidecar.control.quorum import Quorum
from sidecar.control.standby import Spares
from tokenweir.config import Config
from tokenweir.contract.records import ModelControl

REASONS_MOST = 8


@dataclass(frozen=True, slots=True)
class Seen:
    """What the decisions about a model look at."""

    backends: Sequence[BackendUse]
    """Those of the role active, promoted ones included."""
    fallbacks: int
    """How many of the role fallback are usable."""
    waiting: Waiting
    output: float
    """Mean tokens that a waiting request will hold."""
    restarting: bool
    """Whether a backend is being restarted for want of memory."""


class ModelDecisions:
    """The decisions of one public model and their memories."""

    def __init__(self) -> None:
        self.breaker = Breaker()
        self.quorum = Quorum()
        self.burst = Burst()
        self.precision = Precision()
        self.drain = DrainRate()
        self.spares = Spares()
        self.load = model_load((), Waiting())
        self._retry_after_ms: float | None = None
        self._restarting = False

    def update(self, seen: Seen, config: Config, now: float) -> bool:
        """Decide at monotonic `now`; returns whether a mode changed."""
        backends, waiting, fallbacks = seen.backends, seen.waiting, seen.fallbacks
        self.load = load = model_load(backends, waiting)
        changed = self.breaker.update(load, config.breaker, config.queue.longest_wait, now)
        changed |= self.quorum.update(load.usable, load.expected, fallbacks, config.breaker, now)
        changed |= self.burst.update(load, config.burst, now)
        changed |= self.precision.update(backends, config.precision, now)
        changed |= seen.restarting != self._restarting
        self._restarting = seen.restarting
        self._retry_after_ms = None
        if self.breaker.refuse_new.on or self.breaker.drop_low.on:
            room = (config.breaker.refuse_new - config.breaker.release) * load.capacity
            excess = max(load.used - room, 0.0) + waiting.depth * seen.output
            self._retry_after_ms = round(self.drain.retry_after_ms(excess, now))
        return changed

    def waits(self, waiting: Waiting, config: Config, now: float) -> bool:
        """Take what the leases say between two ticks; returns whether a level or burst mode began or
        ended."""
        self.load = load = replace(self.load, waiting=waiting)
        changed = self.breaker.update(load, config.breaker, config.queue.longest_wait, now)
        return changed | self.burst.update(load, config.burst, now)

    @property
    def refusing(self) -> bool:
        """Whether requests are turned away or wait: a new backend is wanted soon."""
        return self.breaker.refuse_new.on or self.breaker.drop_low.on or self.load.waiting.depth > 0

    @property
    def level(self) -> int:
        """The highest level that holds."""
        if self.quorum.fallback.on:
            return 4
        if self._restarting:
            return 3
        if self.breaker.drop_low.on:
            return 2
        return 1 if self.breaker.refuse_new.on else 0

    def modes(self) -> dict[str, str]:
        """Which levels hold, and whether burst mode does, with why. Level 3 is told by its restarts."""
        refusals = iter(self.breaker.reasons)
        return {
            **({"level 1": next(refusals, "")} if self.breaker.refuse_new.on else {}),
            **({"level 2": next(refusals, "")} if self.breaker.drop_low.on else {}),
            **({"level 4": self.quorum.reason} if self.quorum.fallback.on else {}),
            **({"burst": self.burst.reason} if self.burst.mode.on else {}),
        }

    def published(self) -> ModelControl:
        """What gateways follow."""
        reasons = [
            *self.breaker.reasons,
            self.quorum.reason,
            self.burst.reason,
            self.precision.reason,
        ]
        return ModelControl(
            level=self.level,
            refuse_new=self.breaker.refuse_new.on,
            drop_low=self.breaker.drop_low.on,
            fallback=self.quorum.fallback.on,
            burst=self.burst.mode.on,
            precision=self.precision.preferred,
            load=None if self.load.use is None else min(max(self.load.use, 0.0), 1.0),
            retry_after_ms=self._retry_after_ms,
            reasons=[reason for reason in reasons if reason][:REASONS_MOST],
        )

    def dump(self) -> dict[str, Any]:
        """What another sidecar needs to go on."""
        return {
            "refuse_new": self.breaker.refuse_new.on,
            "drop_low": self.breaker.drop_low.on,
            "fallback": self.quorum.fallback.on,
            "burst": self.burst.mode.on,
            "pressure": self.precision.pressure.on,
            "spares": self.spares.dump(),
        }

    def restore(self, state: Mapping[str, Any], now: float) -> None:
        """Take over a dump. Raises KeyError, TypeError on a strange one."""
        self.spares.restore(state["spares"])
        self.breaker.refuse_new.restore(bool(state["refuse_new"]), now)
        self.breaker.drop_low.restore(bool(state["drop_low"]), now)
        self.quorum.fallback.restore(bool(state["fallback"]), now)
        self.burst.mode.restore(bool(state["burst"]), now)
        self.precision.pressure.restore(bool(state["pressure"]), now)
