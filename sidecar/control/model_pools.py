"""The backends of each model taken together: what the model's decisions see of them, and what they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
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
from sidecar.control.spare_starts import SpareStarts
from sidecar.control.spare_stops import SpareStops
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
        self._starts = SpareStarts()
        self._stops = SpareStops()
        self._modes: dict[str, set[str]] = {}
        """By model which levels and modes hold, as far as they were logged."""

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
            self._log_modes(name, model)
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
            self._modes.pop(name, None)
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
            for member in members:
                variant = uses[member.config.id].precision
                member.passed_over = model.precision.passes_over(variant, name)
            if leading:
                self._tell_fallback(name, model)
            self._log_modes(name, model)
            change = self._spares(name, members, uses, config, now)
            if change is not None and leading:
                self._promote(change, config, orders, now)
                changed = True
        if leading:
            self._start_spares(config, orders, now)
            orders.stops = self._stops.due(self._returned(), now)
        return changed, orders

    def started(self, spare: str, ok: bool, text: str, now: float) -> None:
        """The actuator has answered to a start."""
        self._starts.carried_out(spare, ok, text, now)
        if not ok:
            self._alerts.tell(Kind.START_FAILED, spare, text)

    def stopped(self, spare: str, ok: bool, now: float) -> None:
        """The actuator has answered to a stop; or, not `ok`, it is to be ordered again."""
        self._stops.carried_out(spare, ok, now)

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

    def stopping(self) -> list[str]:
        """Spares that went back and are not stopped yet; another sidecar goes on with them."""
        return self._stops.names()

    def restore_stopping(self, spares: Iterable[str]) -> None:
        """Go on with spares that another sidecar did not get stopped."""
        self._stops.restore(spares)

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
                capacity=float(member.kv_tokens(self._fleet.models) or 1.0),
                promoted=member.promoted,
                available=member.readiness.state is State.READY or self._can_act(member.config.id),
            )
            for member in members
            if member.config.role is Role.STANDBY and not member.drains and member.held_out is None
        ]
        if not spares:
            return None
        coming = sum(
            spare.capacity
            for spare in spares
            if spare.promoted and not uses[spare.id].usable and self._starts.problem(spare.id) is None
        )
        # A ramping backend counts in full: its share comes by itself.
        capacity = sum(
            float(member.kv_tokens(self._fleet.models) or 1.0)
            for member in members
            if member.role is Role.ACTIVE and uses[member.config.id].usable
        )
        model = self.models[name]
        owned = {spare for one in self.models.values() for spare in one.spares.promoted}
        # One that was away for a while, be it held out or drained, is to go back too, some day.
        model.spares.promoted += [one.id for one in spares if one.promoted and one.id not in owned]
        wanted = model.load.waiting.depth * (self._output(name) or OUTPUT_PRIOR)
        demand = Demand(model.load.used + wanted, capacity + coming)
        return model.spares.update(demand, spares, config.standby, now)

    def _promote(self, change: Change, config: Config, orders: SpareOrders, now: float) -> None:
        member = self._fleet.members[change.backend]
        log.info("standby", backend=change.backend, promote=change.promote, reason=change.reason)
        member.promoted = change.promote
        if not change.promote:
            self._forget_start(change.backend)
            if config.standby.stop and self._can_act(change.backend):
                self._stops.wanted(change.backend)
            return
        if member.readiness.state is State.READY:
            member.arrived_at = now

    def _start_spares(self, config: Config, orders: SpareOrders, now: float) -> None:
        """Start the promoted spares that are not there, be it that the load has just called for them, or that
        their last start failed, or that the sidecar that ordered it has ended."""
        for name, member in self._fleet.members.items():
            if not member.promoted or member.readiness.state is State.READY:
                self._forget_start(name)
            elif _is_to_be_started(member) and self._can_act(name):
                if self._starts.due(name, config.restart, now):
                    orders.starts.append(name)
                problem = self._starts.problem(name)
                if problem is not None:
                    self._alerts.tell(Kind.START_FAILED, name, problem)

    def _returned(self) -> set[str]:
        """The spares that are not in service."""
        members = self._fleet.members
        return {
            name
            for name, one in members.items()
            if one.config.role is Role.STANDBY and not one.promoted and self._can_act(name)
        }

    def _forget_start(self, spare: str) -> None:
        self._starts.forget(spare)
        self._alerts.clear(Kind.START_FAILED, spare)

    def _use(self, member: Member, now: float) -> BackendUse:
        known = member.hardware(self._fleet.models)
        return BackendUse(
            use=memory_use(member.config, member.record, now).use,
            capacity=member.kv_tokens(self._fleet.models),
            usable=member.state is State.READY
            and member.address is not None
            and not self._gateways.ejected_everywhere(member.config.id),
            admit=member.admit,
            precision=known.precision,
            fp8=known.fp8,
            spare=member.config.role is Role.STANDBY,
        )

    def _log_modes(self, name: str, model: ModelDecisions) -> None:
        modes, before = model.modes(), self._modes.get(name, set())
        if modes.keys() == before:
            return
        for mode in sorted(modes.keys() - before):
            log.info("mode_began", model=name, mode=mode, reason=modes[mode])
        for mode in sorted(before - modes.keys()):
            log.info("mode_ended", model=name, mode=mode, reason=model.load.text())
        self._modes[name] = set(modes)

    def _tell_fallback(self, name: str, model: ModelDecisions) -> None:
        if model.quorum.fallback.on:
            self._alerts.tell(Kind.FALLBACK, name, model.quorum.reason)
        else:
            self._alerts.clear(Kind.FALLBACK, name)


def _is_to_be_started(member: Member) -> bool:
    """Whether nobody is there, and it is not one that has served and fell: that is restarted, within its
    limits."""
    return member.absent and not member.failures.missed and member.held_out is None and not member.drains


def _counts(member: Member) -> bool:
    """Whether a backend that cannot serve is missed: one that an operator took out, or that never served, is
    not."""
    if member.drains:
        return False
    return member.was_ready if not member.promoted else member.state is State.READY
