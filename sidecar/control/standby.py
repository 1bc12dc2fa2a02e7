"""When a backend of the role standby is put into service, and when it goes back: by the load that the last
minute leads to, not by the one that is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecar.control.forecast import Trend
from sidecar.control.latch import Latch
from tokenweir.config.control import StandbyConfig


@dataclass(frozen=True, slots=True)
class Demand:
    """What a model holds and wants, in tokens (or backends, where no capacity is known)."""

    used: float
    """Held on its usable backends, and what the waiting ones will hold."""
    capacity: float
    """Of the usable backends, and of promoted ones that are still starting."""


@dataclass(frozen=True, slots=True)
class Spare:
    """A backend of the role standby that serves the model."""

    id: str
    capacity: float
    promoted: bool
    available: bool
    """Whether it could be promoted: it answers, or it can be started."""


@dataclass(frozen=True, slots=True)
class Change:
    """A promotion, or a return."""

    backend: str
    promote: bool
    reason: str


class Spares:
    """The spares of one model."""

    def __init__(self) -> None:
        self.trend = Trend()
        self.promoted: list[str] = []
        """In order of their promotion."""
        self.reason = ""
        self._short = Latch()
        self._idle = Latch()

    def update(
        self, demand: Demand, spares: Sequence[Spare], config: StandbyConfig, now: float
    ) -> Change | None:
        """Decide at monotonic `now`: at most one change at a time."""
        present = {spare.id: spare for spare in spares}
        self.promoted = [name for name in self.promoted if name in present and present[name].promoted]
        self.trend.observe(demand.used, now)
        ahead = self.trend.forecast(demand.used, now, config.horizon)
        use = _share(ahead, demand.capacity)
        self.reason = f"forecast: {use:.0%} in {config.horizon / 1000:.0f} s"
        free = [spare for spare in spares if not spare.promoted and spare.available]
        short = use > config.promote and bool(free)
        self._short.update(short, not short, now, hold=config.hold)
        if self._short.on:
            self._short.restore(False, now)
            chosen = max(free, key=lambda spare: (spare.capacity, spare.id))
            self.promoted.append(chosen.id)
            return Change(chosen.id, True, f"{self.reason}, over {config.promote:.0%}")
        return self._give_back(demand, present, config, now)

    def _give_back(
        self, demand: Demand, present: Mapping[str, Spare], config: StandbyConfig, now: float
    ) -> Change | None:
        last = present[self.promoted[-1]] if self.promoted else None
        without = _share(demand.used, demand.capacity - last.capacity) if last else 1.0
        idle = last is not None and without < config.demote
        self._idle.update(idle, not idle, now, hold=config.idle)
        if last is None or not self._idle.on:
            return None
        self._idle.restore(False, now)
        self.promoted.remove(last.id)
        seconds = config.idle / 1000
        return Change(
            last.id, False, f"{without:.0%} without it, below {config.demote:.0%} for {seconds:.0f} s"
        )

    def dump(self) -> dict[str, Any]:
        """What another sidecar needs to go on."""
        return {"promoted": list(self.promoted)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take over a dump. Raises KeyError, TypeError on a strange one."""
        self.promoted = [str(name) for name in state["promoted"]]


def _share(used: float, capacity: float) -> float:
    return used / capacity if capacity > 0 else float("inf")
