"""The backends of each model taken together: what the model's decisions see of them, and what they change."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import structlog

from sidecar.control.alerts import Alerts, Kind
from sidecar.control.arrivals import ArrivalCounts
from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.control.member import Member
from sidecar.control.memory import memory_use
from sidecar.control.model import ModelDecisions, Seen
from sidecar.control.model_load import BackendUse
from sidecar.control.recovery import Recovery
from sidecar.control.standby import Change, Demand, Spare
from tokenweir.config import Config
from tokenweir.contract.records import ModelControl, Role, State

log = structlog.get_logger(__name__)

OUTPUT_PRIOR: Final = 256.0
"""Tokens that a waiting request will hold, before its model's outputs are known."""


@dataclass(slots=True)
class SpareOrders:
    """Spares to be started, and to be stopped once they are empty."""

    starts: list[str] = field(default_factory=list)
    stops: list[str] = field(default_factory=list)


class ModelPools:
    """The decisions by public model name."""

    def __init__(
        self,
        fleet: Fleet,
        gateways: Gateways,
        recovery: Recovery,
        alerts: Alerts,
        *,
        can_act: Callable[[str], bool],
        output: Callable[[str], float | None],
    ) -> None:
        """`can_act` tells whether a backend has an actuator, `output` a model's mean output in tokens."""
        self.models: dict[str, ModelDecisions] = {}
        self._fleet = fleet
        self._gateways = gateways
        self._recovery = recovery
        self._alerts = alerts
        self._can_act = can_act
        self._output = output
        self._counts = ArrivalCounts()

    def leases_read(self, config: Config, now: float) -> bool:
        """The gateways' leases were read: who waits, who came. Returns whether a level or burst mode began or
        ended."""
        if not self._gateways.known:
            return False
        changed = False
        counts = self._counts.new(self._gateways.leases)
        for name, model in self.models.items():
            model.burst.arrived(counts.get(name, 0), now)
            changed |= model.waits(self._gateways.waiting(name), config, now)
        return changed

    def decide(self, config: Config, leading: bool, now: float) -> tuple[bool, SpareOrders]:
        """Decide for every model; returns whether a mode changed, and what is to be done with spares."""
        orders = SpareOrders()
        pools: dict[str, list[Member]] = {}
        for member in self._fleet.members.values():
            for name in self._fleet.served_models(member):
                pools.setdefault(name, []).append(member)
        for name in [name for name in self.models if name not in pools]:
            del self.models[name]
        uses = {name: self._use(member, now) for name, member in self._fleet.members.items()}
        changed = False
        for name, members in pools.items():
            model = self.models.setdefault(name, ModelDecisions())
            active = [
                uses[member.config.id] for member in members if member.role is Role.ACTIVE and _counts(member)
            ]
            seen = Seen(
                backends=active,
                fallbacks=sum(
                    member.role is Role.FALLBACK and uses[member.config.id].usable for member in members
                ),
                waiting=self._gateways.waiting(name),
                output=self._output(name) or OUTPUT_PRIOR,
                restarting=any(self._recovery.restarting(member) for member in members),
            )
            changed |= model.update(seen, config, now)
            self._tell_fallback(name, model)
            change = self._spares(name, members, uses, config, now)
            if change is not None and leading:
                self._promote(change, config, orders, now)
                changed = True
        return changed, orders

    def published(self) -> dict[str, ModelControl]:
        """What gateways follow, by public name."""
        return {name: model.published() for name, model in self.models.items()}

    def dump(self) -> dict[str, Any]:
        """What another sidecar needs to go on."""
        return {name: model.dump() for name, model in self.models.items()}

    def restore(self, state: Mapping[str, Any], now: float) -> None:
        """Go on from a dump. Raises ValueError, KeyError, TypeError, AttributeError on a strange one."""
        for name, memory in state.items():
            self.models.setdefault(str(name), ModelDecisions()).restore(memory, now)

    def _spares(
        self,
        name: str,
        members: list[Member],
        uses: Mapping[str, BackendUse],
        config: Config,
        now: float,
    ) -> Change | None:
        spares = [
            Spare(
                id=member.config.id,
                capacity=float(member.tokens() or 1.0),
                promoted=member.promoted,
                available=member.readiness.state is State.READY or self._can_act(member.config.id),
            )
            for member in members
            if member.config.role is Role.STANDBY
            and member.leaving_since is None
            and not member.draining
            and member.held_out is None
        ]
        if not spares:
            return None
        coming = sum(spare.capacity for spare in spares if spare.promoted and not uses[spare.id].usable)
        # A ramping backend counts in full: its share comes by itself.
        capacity = sum(
            float(member.tokens() or 1.0)
            for member in members
            if member.role is Role.ACTIVE and uses[member.config.id].usable
        )
        model = self.models[name]
        wanted = model.load.waiting.depth * (self._output(name) or OUTPUT_PRIOR)
        demand = Demand(model.load.used + wanted, capacity + coming)
        return model.spares.update(demand, spares, config.standby, now)

    def _promote(self, change: Change, config: Config, orders: SpareOrders, now: float) -> None:
        member = self._fleet.members[change.backend]
        log.info("standby", backend=change.backend, promote=change.promote, reason=change.reason)
        member.promoted = change.promote
        if not change.promote:
            if config.standby.stop and self._can_act(change.backend):
                orders.stops.append(change.backend)
            return
        if member.readiness.state is State.READY:
            member.arrived_at = now
        elif self._can_act(change.backend):
            orders.starts.append(change.backend)

    def _use(self, member: Member, now: float) -> BackendUse:
        known = member.hardware(self._fleet.models)
        return BackendUse(
            use=memory_use(member.config, member.record, now).use,
            capacity=member.tokens(),
            usable=member.state is State.READY
            and member.address is not None
            and not self._gateways.ejected_everywhere(member.config.id),
            admit=member.admit,
            precision=known.precision,
            fp8=known.fp8,
        )

    def _tell_fallback(self, name: str, model: ModelDecisions) -> None:
        if model.quorum.fallback.on:
            self._alerts.tell(Kind.FALLBACK, name, model.quorum.reason)
        else:
            self._alerts.clear(Kind.FALLBACK, name)


def _counts(member: Member) -> bool:
    """Whether a backend that cannot serve is missed: one that an operator took out, or that never served, is
    not."""
    if member.draining or member.leaving_since is not None:
        return False
    return member.was_ready if not member.promoted else member.state is State.READY
