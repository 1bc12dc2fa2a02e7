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

import structlog

from sidecar.clock import wall_ms
from sidecar.control.alerts import Alerts, Kind
from sidecar.control.arrivals import ArrivalCounts
from sidecar.control.experience import worse_than_peers
from sidecar.control.failures import Cause, Failure
from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.control.margin import Margin
from sidecar.control.member import Member
from sidecar.control.memory import memory_use
from sidecar.control.model import ModelDecisions, Seen
from sidecar.control.model_load import BackendUse
from sidecar.control.ramp import admitted
from sidecar.control.restart import Order, Restarts, Stage
from sidecar.control.standby import Change, Demand, Spare
from sidecar.control.warm_up import WarmUp
from sidecar.control.xid import Remedy, describe, remedy
from tokenweir.config import Config
from tokenweir.contract.records import Completion, ModelControl, PolicySettings, Role, State

log = structlog.get_logger(__name__)

ARRIVAL_BELIEVED_MS: Final = 10_000
"""An engine that came up longer ago, while this sidecar did not lead, is no new one."""
OUTPUT_PRIOR: Final = 256.0
"""Tokens that a waiting request will hold, before its model's outputs are known."""


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
    ) -> None:
        """`can_act` tells whether a backend has an actuator, `output` a model's mean output in tokens."""
        self.models: dict[str, ModelDecisions] = {}
        self.restarts = Restarts()
        self.alerts = Alerts()
        self.margin = Margin()
        self.taken_out: dict[str, str] = {}
        """Backends whose GPU was taken out, and why; until an operator brings them back."""
        self._fleet = fleet
        self._gateways = gateways
        self._can_act = can_act
        self._output = output
        self._counts = ArrivalCounts()

    # What happens between two ticks

    def leases_read(self, config: Config, now: float) -> bool:
        """The gateways' leases were read: follow the arrivals. Returns whether a burst mode began or
        ended."""
        if not self._gateways.known:
            return False
        changed = False
        counts = self._counts.new(self._gateways.leases)
        for name, model in self.models.items():
            model.burst.arrived(counts.get(name, 0), now)
            changed |= model.burst.update(model.load, config.burst, now)
        return changed

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
            self.margin.out_of_memory(now)
        if record.error == "out_of_memory":
            member.failures.said_out_of_memory(now)
            return True
        return False

    # The tick

    def step(self, config: Config, leading: bool, now: float) -> tuple[bool, Orders]:
        """Decide at monotonic `now`. Returns whether a mode or a state changed, and what is to be done."""
        orders = Orders()
        states = {name: member.state for name, member in self._fleet.members.items()}
        self.restarts.keep(set(self._fleet.members))
        if leading:
            self._failures(config, now)
            self._restart(config, orders, now)
        self._hold_out()
        self._arrivals(config, leading, orders, now)
        changed = self._decide(config, leading, orders, now)
        self._ramps(config, now)
        for name, member in self._fleet.members.items():
            changed |= self._fleet.note(member, states[name])
        return changed, orders

    def published(self) -> dict[str, ModelControl]:
        """What gateways follow, by public name."""
        return {name: model.published() for name, model in self.models.items()}

    def thresholds(self, config: Config, now: float) -> PolicySettings:
        """The policies' numbers, with the margin widened after an out-of-memory."""
        z = self.margin.z(config.thresholds.z, now)
        return (
            config.thresholds if z == config.thresholds.z else config.thresholds.model_copy(update={"z": z})
        )

    # What an operator and the operations report

    def bring_back(self, backend: str) -> bool:
        """An operator has mended a backend that was left out; returns whether it was."""
        known = self.taken_out.pop(backend, None) is not None
        known |= self.restarts.bring_back(backend)
        self.alerts.clear_subject(backend)
        self._hold_out()
        return known

    def order_restart(self, backend: str, now: float) -> bool:
        """An operator wants a restart; returns False where one is under way."""
        member = self._fleet.members[backend]
        failure = Failure(Cause.OPERATOR, "an operator asked for it")
        return self.restarts.want(backend, member.group(), failure, now)

    def restarted(self, backend: str, ok: bool, text: str, now: float) -> None:
        """The actuator has answered to a restart."""
        self.restarts.carried_out(backend, ok, text, now)
        if ok:
            self.alerts.clear(Kind.RESTART_FAILED, backend)
        else:
            self._alert(Kind.RESTART_FAILED, backend, text)

    def warmed(self, backend: str, config: Config, now: float) -> None:
        """A warm-up is over: the ramp begins."""
        member = self._fleet.members.get(backend)
        if member is not None and member.warming is not None:
            before = member.state
            member.warming = None
            member.ramp.begin(config.ramp, now)
            self._fleet.note(member, before)
            self._share_out()

    # Failures and restarts

    def _failures(self, config: Config, now: float) -> None:
        for name, member in self._fleet.members.items():
            for event in member.xids.new(member.record.xids):
                self._xid(name, member, describe(event), remedy(event.code), now)
            failure = member.containers.verdict(member.record.container, now)
            failure = failure or member.failures.verdict(now, config.restart.crash_hold)
            if failure is None or member.leaving_since is not None:
                continue
            if failure.cause is Cause.OUT_OF_MEMORY:
                self.margin.out_of_memory(now)
            self._want(config, name, member, failure, now)

    def _xid(self, name: str, member: Member, text: str, what: Remedy, now: float) -> None:
        log.warning("gpu_xid", backend=name, text=text, remedy=what.value)
        if what is Remedy.REMOVE:
            self.taken_out[name] = f"taken out: {text}; no restart mends it"
            self._alert(Kind.XID, name, text)
        elif what is Remedy.RESTART and self._can_act(name):
            self.restarts.want(name, member.group(), Failure(Cause.XID, text), now)

    def _want(self, config: Config, name: str, member: Member, failure: Failure, now: float) -> None:
        if not config.restart.enabled or not self._can_act(name):
            kind = Kind.OUT_OF_MEMORY if failure.cause is Cause.OUT_OF_MEMORY else Kind.NO_ACTUATOR
            self._alert(kind, name, f"{failure.text}; it has no actuator, so nobody restarts it")
        elif self.restarts.want(name, member.group(), failure, now):
            log.warning("restart_wanted", backend=name, cause=failure.cause.value, reason=failure.text)

    def _restart(self, config: Config, orders: Orders, now: float) -> None:
        for name, member in self._fleet.members.items():
            if self._serves_again(name, member) and self.restarts.serves(name, now):
                log.info("restarted_engine_serves", backend=name)
                for kind in (Kind.RESTART_FAILED, Kind.OUT_OF_MEMORY, Kind.NO_ACTUATOR):
                    self.alerts.clear(kind, name)
            elif member.readiness.state is State.READY:
                self.alerts.clear(Kind.NO_ACTUATOR, name)
        for name in self.restarts.overdue(config.restart, now):
            self._alert(Kind.RESTART_FAILED, name, self.restarts.plans[name].text)
        due, spent = self.restarts.due(config.restart, now)
        for name in spent:
            self._alert(Kind.RESTARTS_SPENT, name, self.restarts.plans[name].text)
        orders.restarts += due

    def _serves_again(self, name: str, member: Member) -> bool:
        """Whether it serves, and has answered since its restart was carried out: what was seen before then
        was the old process."""
        if member.readiness.state is not State.READY:
            return False
        plan = self.restarts.plans.get(name)
        if plan is None or plan.stage is not Stage.AWAITED:
            return True
        return member.record.answered_at is not None and member.record.answered_at > plan.since

    def _hold_out(self) -> None:
        for name, member in self._fleet.members.items():
            held = self.taken_out.get(name)
            if held is None and self.restarts.holds_out(name):
                held = self.restarts.reason(name)
            member.held_out = held

    def _alert(self, kind: Kind, subject: str, text: str) -> None:
        if self.alerts.put(kind, subject, text, wall_ms()):
            log.error("alert", kind=kind.value, subject=subject, text=text)

    # New engines

    def _arrivals(self, config: Config, leading: bool, orders: Orders, now: float) -> None:
        for name, member in self._fleet.members.items():
            if member.readiness.state is not State.READY:
                member.warming = None
            if member.arrived_at is None:
                continue
            if not leading:
                if now - member.arrived_at > ARRIVAL_BELIEVED_MS:
                    member.arrived_at = None
                continue
            member.arrived_at = None
            if not self._has_peer(member):
                # Nobody else can serve: it is all there is.
                member.ramp.end()
            elif config.ramp.enabled and config.ramp.warm_up > 0:
                member.warming = WarmUp(now)
                orders.warm_ups.append(name)
            else:
                member.ramp.begin(config.ramp, now)

    def _has_peer(self, member: Member) -> bool:
        """Whether another backend that is in service serves one of its models."""
        names = set(self._fleet.served_models(member))
        return any(
            other is not member
            and other.state is State.READY
            and other.role is member.role
            and not names.isdisjoint(self._fleet.served_models(other))
            for other in self._fleet.members.values()
        )

    def _ramps(self, config: Config, now: float) -> None:
        for member in self._fleet.members.values():
            if member.state is State.READY and member.ramp.going_on:
                names = self._fleet.served_models(member)
                peers = [
                    other.experience
                    for other in self._fleet.members.values()
                    if other is not member
                    and other.state is State.READY
                    and not other.ramp.going_on
                    and not names.keys().isdisjoint(self._fleet.served_models(other))
                ]
                worse = worse_than_peers(member.experience, peers, now, config.ramp.worse, config.ramp.errors)
                hurry = any(self.models[name].refusing for name in names if name in self.models)
                member.ramp.update(config.ramp, now, worse, hurry)
        self._share_out()

    def _share_out(self) -> None:
        """Reckon what each backend may take from its ramp and those of its peers."""
        groups: dict[str, list[Member]] = {}
        for member in self._fleet.members.values():
            member.admit = 1.0
            if member.state is State.READY:
                for name in self._fleet.served_models(member):
                    groups.setdefault(f"{member.role.value} {name}", []).append(member)
        for members in groups.values():
            if any(member.ramp.going_on for member in members):
                shares = admitted([member.ramp.share for member in members])
                for member, share in zip(members, shares, strict=True):
                    member.admit = min(member.admit, share)

    # Models

    def _decide(self, config: Config, leading: bool, orders: Orders, now: float) -> bool:
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
                restarting=any(self._in_restart(member) for member in members),
            )
            changed |= model.update(seen, config, now)
            self._tell_fallback(name, model)
            change = self._spares(name, members, uses, config, now)
            if change is not None and leading:
                self._promote(change, config, orders, now)
                changed = True
        return changed

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

    def _promote(self, change: Change, config: Config, orders: Orders, now: float) -> None:
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

    def _in_restart(self, member: Member) -> bool:
        plan = self.restarts.plans.get(member.config.id)
        return (
            plan is not None
            and plan.failure.cause is Cause.OUT_OF_MEMORY
            and plan.stage in {Stage.WANTED, Stage.ORDERED, Stage.AWAITED}
        )

    def _tell_fallback(self, name: str, model: ModelDecisions) -> None:
        if model.quorum.fallback.on:
            self._alert(Kind.FALLBACK, name, model.quorum.reason)
        else:
            self.alerts.clear(Kind.FALLBACK, name)

    # Handing over

    def dump(self, now: float) -> dict[str, Any]:
        """What another sidecar needs to go on."""
        members = self._fleet.members
        return {
            "time_ms": wall_ms(),
            "models": {name: model.dump() for name, model in self.models.items()},
            "ramps": {name: member.ramp.dump() for name, member in members.items() if member.ramp.going_on},
            "warming": [name for name, member in members.items() if member.warming is not None],
            "promoted": [name for name, member in members.items() if member.promoted],
            "taken_out": dict(self.taken_out),
            "restarts": self.restarts.dump(now),
        }

    def restore(self, state: Mapping[str, Any], now: float) -> None:
        """Go on from a dump. Raises ValueError, KeyError, TypeError, AttributeError on a strange one."""
        then = now - max(0.0, wall_ms() - float(state["time_ms"]))
        members = self._fleet.members
        self.restarts.restore(dict(state["restarts"]), then)
        self.taken_out = {str(name): str(why) for name, why in state["taken_out"].items() if name in members}
        for name, memory in state["models"].items():
            self.models.setdefault(str(name), ModelDecisions()).restore(memory, now)
        for name, member in members.items():
            member.promoted = name in state["promoted"] and member.config.role is Role.STANDBY
            if name in state["ramps"]:
                member.ramp.restore(state["ramps"][name], now)
            if name in state["warming"]:
                member.arrived_at = now
        for name, why in self.taken_out.items():
            self.alerts.put(Kind.XID, name, why, wall_ms())
        self._hold_out()


def _counts(member: Member) -> bool:
    """Whether a backend that cannot serve is missed: one that an operator took out, or that never served, is
    not."""
    if member.draining or member.leaving_since is not None:
        return False
    return member.was_ready if not member.promoted else member.state is State.READY
