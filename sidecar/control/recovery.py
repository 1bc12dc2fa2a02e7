"""Level 3: what is done about engines that have died and GPUs that report errors. Who fell is taken out,
restarted by its actuator within the limits of `restart.py`, or left out until somebody comes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import structlog

from sidecar.clock import wall_ms
from sidecar.control.alerts import Alerts, Kind
from sidecar.control.failures import Cause, Failure
from sidecar.control.fleet import Fleet
from sidecar.control.margin import Margin
from sidecar.control.member import Member
from sidecar.control.restart import Order, Plan, Restarts, Stage, is_long
from sidecar.control.xid import Remedy, describe, remedy
from sidecar.telemetry.readings import XidEvent
from tokenweir.config import Config
from tokenweir.config.control import RestartConfig
from tokenweir.contract.records import Role, State

log = structlog.get_logger(__name__)

RENEWAL_MS: Final = 15_000
"""An engine that goes on answering for so long after its restart, and shows no sign of a new process, counts
as restarted: not every engine's counters tell."""
FRESH_MS: Final = 10_000
"""What happened longer ago, while another sidecar led, was that one's to act on."""
SEEN_LATER_MS: Final = 2000
"""So much later than by the sidecar that acted on it an error of a GPU may be seen by the next."""


class Recovery:
    """The failures and restarts of the fleet."""

    def __init__(self, fleet: Fleet, can_act: Callable[[str], bool], alerts: Alerts, margin: Margin) -> None:
        """`can_act` tells whether a backend has an actuator."""
        self.restarts = Restarts()
        self.taken_out: dict[str, str] = {}
        """Backends whose GPU was taken out, and why; until an operator brings them back."""
        self._fleet = fleet
        self._can_act = can_act
        self._alerts = alerts
        self._margin = margin
        self._unmended: dict[str, float] = {}
        """Backends that ran out of memory and that nobody of us restarts -> since when that is known."""

    def step(self, config: Config, leading: bool, now: float) -> list[Order]:
        """One tick: the restarts to be carried out. Without the lead nothing is decided."""
        orders: list[Order] = []
        self.restarts.keep(set(self._fleet.members))
        if leading:
            self._failures(config, now)
            orders = self._restart(config, now)
        else:
            for member in self._fleet.members.values():
                member.xids.pass_over(now - FRESH_MS)
                member.containers.pass_over(now - FRESH_MS)
        self.hold_out()
        return orders

    def hold_out(self) -> None:
        """Take out of rotation who must get no requests though it may answer."""
        for name, member in self._fleet.members.items():
            held = self.taken_out.get(name)
            if held is None and self.restarts.holds_out(name):
                held = self.restarts.reason(name)
            member.held_out = held

    def restarting(self, member: Member) -> bool:
        """Whether it is being restarted for want of memory."""
        plan = self.restarts.plans.get(member.config.id)
        return (
            plan is not None
            and plan.failure.cause is Cause.OUT_OF_MEMORY
            and plan.stage in {Stage.WANTED, Stage.ORDERED, Stage.AWAITED}
        )

    def is_history(self, backend: str, at: float) -> bool:
        """Whether an engine that a request met at monotonic `at` is no longer there, or is being restarted
        since: records come late, and come again to the sidecar that takes over."""
        member = self._fleet.members.get(backend)
        renewed = member is not None and member.renewed_at is not None and at <= member.renewed_at
        return renewed or self.restarts.began_since(backend, at)

    # What an operator and the operations report

    def bring_back(self, backend: str) -> bool:
        """An operator has mended a backend that was left out; returns whether it was."""
        known = self.taken_out.pop(backend, None) is not None
        known |= self.restarts.bring_back(backend)
        self._alerts.clear_subject(backend)
        self.hold_out()
        return known

    def order_restart(self, backend: str, now: float) -> bool:
        """An operator wants a restart; returns False where one is under way."""
        member = self._fleet.members[backend]
        failure = Failure(Cause.OPERATOR, "an operator asked for it")
        return self.restarts.want(backend, member.group(), failure, now)

    def set_aside(self, backend: str, now: float) -> bool:
        """An operator has its engine started with other arguments: what was to be done about the one that is
        there is done with. Returns False while it is being restarted."""
        if not self.restarts.set_aside(backend, now):
            return False
        for kind in (Kind.RESTARTS_SPENT, Kind.RESTART_FAILED, Kind.OUT_OF_MEMORY):
            self._alerts.clear(kind, backend)
        self.hold_out()
        return True

    def restarted(self, backend: str, ok: bool, text: str, now: float) -> None:
        """The actuator has answered to a restart."""
        self.restarts.carried_out(backend, ok, text, now)
        if ok:
            self._alerts.clear(Kind.RESTART_FAILED, backend)
        else:
            self._alerts.tell(Kind.RESTART_FAILED, backend, text)

    def late(self, backend: str, text: str) -> None:
        """The actuator has not answered to a restart in time, and is still at it."""
        self._alerts.tell(Kind.RESTART_FAILED, backend, text)

    def not_restarted(self, backend: str, now: float) -> None:
        """In a dry run nothing is done: what was there goes on as it is."""
        self.restarts.abandon(backend, now)
        self.hold_out()

    # Handing over

    def dump(self, now: float) -> dict[str, Any]:
        """What another sidecar needs to go on."""
        return {"taken_out": dict(self.taken_out), "restarts": self.restarts.dump(now)}

    def restore(self, state: Mapping[str, Any], then: float) -> None:
        """Go on from a dump that was made at monotonic `then`. Raises ValueError, KeyError, TypeError on a
        strange one."""
        members = self._fleet.members
        self.restarts.restore(dict(state["restarts"]), then)
        self.taken_out = {str(name): str(why) for name, why in state["taken_out"].items() if name in members}
        for name, why in self.taken_out.items():
            self._alerts.put(Kind.XID, name, why, wall_ms())
        for name, plan in self.restarts.plans.items():
            if plan.stage is Stage.SPENT and name in members:
                self._alerts.put(Kind.RESTARTS_SPENT, name, plan.text, wall_ms())
        for kind, name in self._alerts.standing:
            if kind is Kind.OUT_OF_MEMORY:
                self._unmended.setdefault(name, then)
        self.hold_out()

    # The tick's parts

    def _failures(self, config: Config, now: float) -> None:
        for name, member in self._fleet.members.items():
            for event in member.xids.new(member.record.xids):
                self._xid(name, member, event, now)
            if _rests(member, config):
                member.failures.rests()
                continue
            failure = member.containers.verdict(member.record.container, now)
            if failure is not None and self.restarts.began_since(name, failure.at):
                # The sidecar that led before has acted on it.
                failure = None
            failure = failure or member.failures.verdict(now, config.restart.crash_hold)
            if failure is None:
                continue
            if failure.cause is Cause.OUT_OF_MEMORY:
                self._margin.out_of_memory(now)
            self._want(config, name, member, failure, now)

    def _xid(self, name: str, member: Member, event: XidEvent, now: float) -> None:
        text, what = describe(event), remedy(event.code)
        if what is Remedy.RESTART and self.restarts.began_since(name, event.at - SEEN_LATER_MS):
            return
        log.warning("gpu_xid", backend=name, text=text, remedy=what.value)
        if what is Remedy.REMOVE:
            self.taken_out[name] = f"taken out: {text}; no restart mends it"
            self._alerts.tell(Kind.XID, name, text)
        elif what is Remedy.RESTART and self._can_act(name) and not member.drains:
            self.restarts.want(name, member.group(), Failure(Cause.XID, text), now)

    def _want(self, config: Config, name: str, member: Member, failure: Failure, now: float) -> None:
        if not config.restart.enabled or not self._can_act(name):
            kind = Kind.OUT_OF_MEMORY if failure.cause is Cause.OUT_OF_MEMORY else Kind.NO_ACTUATOR
            if kind is Kind.OUT_OF_MEMORY:
                self._unmended[name] = now
            why = "restarts are turned off" if self._can_act(name) else "it has no actuator"
            self._alerts.tell(kind, name, f"{failure.text}; {why}, so nobody restarts it")
        elif self.restarts.want(name, member.group(), failure, now):
            log.warning("restart_wanted", backend=name, cause=failure.cause.value, reason=failure.text)

    def _restart(self, config: Config, now: float) -> list[Order]:
        for name, member in self._fleet.members.items():
            unseen = self._is_unseen(name, member)
            if self._serves_again(name, member, now) and self.restarts.serves(name, now):
                log.info("restarted_engine_serves", backend=name)
                if unseen:
                    member.arrived_at = now
                for kind in (Kind.RESTART_FAILED, Kind.OUT_OF_MEMORY, Kind.NO_ACTUATOR):
                    self._alerts.clear(kind, name)
            elif member.readiness.state is State.READY:
                self._alerts.clear(Kind.NO_ACTUATOR, name)
                if self._is_mended(name, member):
                    self._alerts.clear(Kind.OUT_OF_MEMORY, name)
        for name in self.restarts.overdue(config.restart, now, self._is_there):
            self._alerts.tell(Kind.RESTART_FAILED, name, self.restarts.plans[name].text)
        due, spent = self.restarts.due(config.restart, now, self._loses)
        for name in spent:
            if self.restarts.plans[name].failure.cause is Cause.OPERATOR and self._is_there(name):
                # It was well before: that it could not be restarted is told, and is no reason to lose it.
                self.restarts.abandon(name, now)
        long = self.restarts.long(config.restart, now)
        for name, member in self._fleet.members.items():
            text = long.get(name) or _long_change(member, config.restart, now)
            self._tell_while(Kind.RESTART_LONG, name, text)
            spent_text = self.restarts.plans[name].text if self.restarts.stage(name) is Stage.SPENT else None
            self._tell_while(Kind.RESTARTS_SPENT, name, spent_text)
        return due

    def _tell_while(self, kind: Kind, name: str, text: str | None) -> None:
        """Let an alert stand while there is something to tell."""
        if text is None:
            self._alerts.clear(kind, name)
        else:
            self._alerts.tell(kind, name, text)

    def _is_mended(self, name: str, member: Member) -> bool:
        """Whether another process serves than the one that was told to be out of memory."""
        if (Kind.OUT_OF_MEMORY, name) not in self._alerts.standing:
            self._unmended.pop(name, None)
            return False
        since = self._unmended.get(name)
        return since is not None and member.renewed_at is not None and member.renewed_at > since

    def _loses(self, name: str) -> bool:
        """Whether requests are lost by its restart: it may get some, or some still run there."""
        if self._fleet.members[name].readiness.state is not State.READY:
            return False
        return not self.restarts.holds_out(name) or not self._fleet.drain_progress(name).done

    def _is_there(self, name: str) -> bool:
        """Whether an engine answers, or its container runs."""
        member = self._fleet.members[name]
        container = member.record.container
        return not member.absent or (container is not None and container.running)

    def _serves_again(self, name: str, member: Member, now: float) -> bool:
        """Whether it serves, and by another process than the one that was to be restarted: that may go on
        answering for a while after the actuator was told."""
        if member.readiness.state is not State.READY:
            return False
        plan = self.restarts.plans.get(name)
        if plan is None or plan.stage is not Stage.AWAITED:
            return True
        return _is_renewed(plan, member) or now - plan.since >= RENEWAL_MS

    def _is_unseen(self, name: str, member: Member) -> bool:
        """Whether it may have been restarted while no sidecar looked: it is new to those that look now."""
        plan = self.restarts.plans.get(name)
        if plan is None or plan.stage is not Stage.AWAITED or not plan.inherited:
            return False
        return not _is_renewed(plan, member)


def _long_change(member: Member, config: RestartConfig, now: float) -> str | None:
    """An engine that is awaited with other arguments for long, in words."""
    if member.applied_at is None or not is_long(now - member.applied_at, config):
        return None
    waited = (now - member.applied_at) / 1000
    return (
        f"{member.changing}: applied {waited:.0f} s ago; it is given up after {config.give_up / 1000:.0f} s"
    )


def _is_renewed(plan: Plan, member: Member) -> bool:
    """Whether another process was seen to answer since its restart began."""
    began = plan.begun[-1] if plan.begun else plan.since
    return member.renewed_at is not None and member.renewed_at > began


def _rests(member: Member, config: Config) -> bool:
    """Whether nobody misses its engine, so that it is not restarted when it goes: somebody wants it empty, it
    is being changed, or it is a spare that is stopped while it is not needed."""
    spare = member.config.role is Role.STANDBY and not member.promoted and config.standby.stop
    return member.drains or spare
