"""The control loop: every tick it looks at the fleet as a whole and decides levels, modes, ramps, spares and
restarts.

`step` decides and changes nothing outside; what is to be done there it returns as `Orders`, which the leader
carries out (`operations.py`). A sidecar that does not lead follows the load, so that it can take over, and
orders nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from sidecar.control.alerts import Alerts, Kind
from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.control.indicator_alerts import Deviations, IndicatorAlerts
from sidecar.control.margin import Margin
from sidecar.control.model import ModelDecisions
from sidecar.control.model_pools import ModelPools
from sidecar.control.recovery import Recovery
from sidecar.control.restart import Order
from sidecar.control.rollout import Rollout
from tokenweir.config import Config
from tokenweir.contract.records import Completion, ModelControl, PolicySettings, Role, State

FORGIVEN_MS: Final = 10_000
"""That an engine lives though it does not answer in time holds for so long after its sidecar said so: longer
than another one needs to take over."""


@dataclass(slots=True)
class Orders:
    """What is to be done outside, by one tick."""

    restarts: list[Order] = field(default_factory=list)
    starts: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)
    """Once they are empty."""
    warm_ups: list[str] = field(default_factory=list)


class ControlLoop:
    """The decisions about the fleet as a whole."""

    def __init__(
        self,
        fleet: Fleet,
        gateways: Gateways,
        can_act: Callable[[str], bool],
        output: Callable[[str], float | None],
        deviations: Deviations = dict,
    ) -> None:
        """`can_act` tells whether a backend has an actuator, `output` a model's mean output in tokens,
        `deviations` how far predictions of each model are from its outputs."""
        self.alerts = Alerts()
        self.margin = Margin()
        self.recovery = Recovery(fleet, can_act, self.alerts, self.margin)
        self.rollout = Rollout(fleet)
        self.pools = ModelPools(fleet, gateways, self.recovery, self.alerts, can_act=can_act, output=output)
        self.indicators = IndicatorAlerts(fleet, self.alerts, deviations)
        self._fleet = fleet
        self._gateways = gateways

    @property
    def models(self) -> dict[str, ModelDecisions]:
        """The decisions by public model name."""
        return self.pools.models

    def leases_read(self, config: Config, now: float) -> bool:
        """The gateways' leases were read between two ticks; returns whether a tick is wanted at once."""
        return self.pools.leases_read(config, now)

    def completed(self, record: Completion, at: float, now: float) -> bool:
        """A request ended at monotonic `at`; returns whether a tick is wanted at once."""
        member = self._fleet.members.get(record.backend)
        model = self.models.get(record.model)
        if model is not None:
            tokens = (record.prompt or record.prompt_estimate) + (record.output or 0)
            model.drain.freed(tokens, at)
        if member is None:
            return False
        member.experience.add(record, at)
        told = member.engine is not None and member.record.engine is not None
        held = self._gateways.leased(record.backend)[1]
        member.cost.completed(record, self._gateways.in_flight(record.backend), held, told, now)
        if record.error:
            self.margin.out_of_memory(at)
        if record.error == "out_of_memory" and not self.recovery.is_history(record.backend, at):
            member.failures.said_out_of_memory(now)
            return True
        return False

    def step(self, config: Config, leading: bool, now: float) -> tuple[bool, Orders]:
        """Decide at monotonic `now`. Returns whether a mode or a state changed, and what is to be done."""
        states = {name: member.state for name, member in self._fleet.members.items()}
        if leading:
            for member in self._fleet.members.values():
                member.elsewhere = None
        restarts = self.recovery.step(config, leading, now)
        warm_ups = self.rollout.arrivals(config, leading, now)
        changed, spares = self.pools.decide(config, leading, now)
        self.rollout.ramps(config, self.models, now)
        if leading:
            self.indicators.step(now)
            self.alerts.keep(self._fleet.members, self.models)
        for name, member in self._fleet.members.items():
            changed |= self._fleet.note(member, states[name])
        orders = Orders(restarts, spares.starts, spares.stops, warm_ups)
        # What is begun is to be remembered before anything else happens to this sidecar.
        return changed or orders != Orders(), orders

    def published(self) -> dict[str, ModelControl]:
        """What gateways follow, by public name."""
        return self.pools.published()

    def thresholds(self, config: Config, now: float) -> PolicySettings:
        """The policies' numbers, with the margin widened after an out-of-memory."""
        z = self.margin.z(config.thresholds.z, now)
        return (
            config.thresholds if z == config.thresholds.z else config.thresholds.model_copy(update={"z": z})
        )

    def dump(self, now: float) -> dict[str, Any]:
        """What another sidecar needs to go on."""
        members = self._fleet.members
        return {
            "alerts": self.alerts.dump(),
            "margin": self.margin.dump(now),
            "models": self.pools.dump(),
            "ramps": {name: member.ramp.dump() for name, member in members.items() if member.ramp.going_on},
            "warming": [name for name, member in members.items() if member.warming is not None],
            "stopping": self.pools.stopping(),
            "promoted": [name for name, member in members.items() if member.promoted],
            "served": [name for name, member in members.items() if member.was_ready],
            "forgiven": [name for name, member in members.items() if member.forgiven],
            "changing": {name: member.changing for name, member in members.items() if member.changing},
            **self.recovery.dump(now),
        }

    def follow(self, state: Mapping[str, Any], now: float, age_ms: float = 0) -> None:
        """Show what the leader decided, as of a dump of `age_ms` ago. Raises ValueError, KeyError, TypeError,
        AttributeError on a strange one."""
        self.alerts.restore(state.get("alerts", ()))
        if "margin" in state:
            self.margin.restore(state["margin"], now - age_ms)
        self.recovery.restore(state, now - age_ms)
        self.pools.restore(state["models"], now)
        for name, member in self._fleet.members.items():
            member.promoted = name in state["promoted"] and member.config.role is Role.STANDBY
            if name in state["ramps"]:
                member.ramp.restore(state["ramps"][name], now)
            else:
                member.ramp.end()
            if age_ms < FORGIVEN_MS and name in state.get("forgiven", ()):
                member.forgive(now)
            member.elsewhere = None
            if name in state.get("changing", {}):
                member.elsewhere = State.DRAINING, str(state["changing"][name])
            elif name in state["warming"]:
                member.elsewhere = State.STARTING, "warming"

    def restore(self, state: Mapping[str, Any], now: float, age_ms: float = 0) -> None:
        """Go on from a dump of `age_ms` ago. Raises as `follow` does."""
        self.follow(state, now, age_ms)
        self.pools.restore_stopping(state.get("stopping", ()))
        for name, member in self._fleet.members.items():
            if name in state["warming"]:
                member.arrived_at = now
            if name in state.get("served", ()):
                member.served_before()
        for name, what in state.get("changing", {}).items():
            if name in self._fleet.members:
                text = f"{what} was cut off: its sidecar ended, or no longer leads; see `GET /api/actions`"
                self.alerts.tell(Kind.CHANGE_CUT_OFF, str(name), text)
