"""Whether and when an engine is restarted: of those that serve one at a time in a group, with growing pauses,
so many times an hour; then it is left out and somebody is called.

`Restarts` decides; `operations.py` carries out what `due` says and reports back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from sidecar.control.failures import Cause, Failure
from tokenweir.config.control import RestartConfig

HOUR_MS: Final = 3_600_000
LONG: Final = 1 / 3
"""Share of `restart.give_up` after which somebody is told that a restart has not ended."""
UNWITNESSED_MS: Final = 60_000
"""After so long an engine that is not there is restarted again, where the sidecar that had ordered it ended
before the actuator had answered: nobody knows whether it was carried out."""


class Stage(StrEnum):
    """How far a restart has come."""

    NONE = "none"
    WANTED = "wanted"
    """It waits for its pause, or, while it still serves, for its turn in the group."""
    ORDERED = "ordered"
    """The actuator is at work."""
    AWAITED = "awaited"
    """The engine was restarted and does not serve yet."""
    SPENT = "spent"
    """No more restarts: it is left out until an operator brings it back."""


@dataclass(slots=True)
class Plan:
    """The restarts of one backend. Times are monotonic ms."""

    group: str
    stage: Stage = Stage.NONE
    failure: Failure = field(default_factory=lambda: Failure(Cause.CRASH, ""))
    since: float = 0.0
    """When the stage began."""
    begun: deque[float] = field(default_factory=deque)
    """When restarts began, within the last hour."""
    text: str = ""
    tried: bool = False
    """Whether an attempt has failed since it was asked for."""
    witnessed: bool = True
    """Whether the actuator's answer was heard."""
    hastened: bool = False
    """Whether an operator has asked for it while it waited for its pause."""

    inherited: bool = False
    """Whether another sidecar ordered it: this one may not have seen the engine go and come."""

    @property
    def at_once(self) -> bool:
        """Whether it is an operator's word, which counts without a pause or a limit, and once: what of it
        fails is tried again by the limits."""
        return self.hastened or (self.failure.cause is Cause.OPERATOR and not self.tried)

    def recent(self, now: float) -> int:
        """Restarts within the last hour."""
        while self.begun and now - self.begun[0] >= HOUR_MS:
            self.begun.popleft()
        return len(self.begun)


def is_long(age_ms: float, config: RestartConfig) -> bool:
    """Whether an engine that is awaited for so long is to be told of."""
    return age_ms >= LONG * config.give_up


@dataclass(frozen=True, slots=True)
class Order:
    """A restart to be carried out now."""

    backend: str
    failure: Failure


class Restarts:
    """The restarts of the fleet."""

    def __init__(self) -> None:
        self.plans: dict[str, Plan] = {}

    def stage(self, backend: str) -> Stage:
        """How far the restart of a backend has come."""
        plan = self.plans.get(backend)
        return Stage.NONE if plan is None else plan.stage

    def holds_out(self, backend: str) -> bool:
        """Whether the backend must get no requests because of its restart. One that is well, and that only an
        operator wants restarted, goes on until its turn has come."""
        plan = self.plans.get(backend)
        if plan is None or plan.stage is Stage.NONE:
            return False
        return plan.stage is not Stage.WANTED or plan.failure.cause is not Cause.OPERATOR

    def reason(self, backend: str) -> str | None:
        """The restart in words; None without one."""
        plan = self.plans.get(backend)
        if plan is None or plan.stage is Stage.NONE:
            return None
        return f"restart {plan.stage.value}: {plan.failure.text}" + (f"; {plan.text}" if plan.text else "")

    def began_since(self, backend: str, at: float) -> bool:
        """Whether a restart of the backend began at or after monotonic `at`, within the last hour."""
        plan = self.plans.get(backend)
        return plan is not None and bool(plan.begun) and at <= plan.begun[-1]

    def want(self, backend: str, group: str, failure: Failure, now: float) -> bool:
        """Ask for a restart; returns whether it was not asked for already."""
        plan = self.plans.setdefault(backend, Plan(group))
        plan.group = group
        if plan.stage is Stage.AWAITED and failure.cause in {Cause.OUT_OF_MEMORY, Cause.XID}:
            # It fell again while it was awaited: that attempt has failed.
            pass
        elif plan.stage is Stage.SPENT and failure.cause is Cause.OPERATOR:
            # The operator's word ends what the limit had decided.
            pass
        elif (
            plan.stage is Stage.WANTED
            and plan.failure.cause is Cause.OPERATOR
            and failure.cause in {Cause.OUT_OF_MEMORY, Cause.XID}
        ):
            # It was well when the operator asked, and is no more: it gets nothing while it waits.
            plan.failure = failure
            return True
        elif plan.stage is Stage.WANTED and failure.cause is Cause.OPERATOR and not plan.at_once:
            plan.hastened = True
            return True
        elif plan.stage is not Stage.NONE:
            return False
        plan.stage, plan.failure, plan.since, plan.text = Stage.WANTED, failure, now, ""
        plan.tried = plan.hastened = False
        return True

    def due(
        self, config: RestartConfig, now: float, serves: Callable[[str], bool] = lambda _: True
    ) -> tuple[list[Order], list[str]]:
        """What is to be restarted now, and which backends have had their restarts and stay out from now
        on. `serves` tells whether an engine still serves: only such a one waits for its turn in the group,
        since what is down loses nothing by its restart."""
        orders: list[Order] = []
        spent: list[str] = []
        busy = {plan.group for plan in self.plans.values() if plan.stage in {Stage.ORDERED, Stage.AWAITED}}
        wanting = [(plan.since, name) for name, plan in self.plans.items() if plan.stage is Stage.WANTED]
        for _, name in sorted(wanting):
            plan = self.plans[name]
            recent = plan.recent(now)
            if recent >= config.most_per_hour and not plan.at_once:
                plan.stage, plan.since = Stage.SPENT, now
                plan.text = f"{recent} restarts within the last hour, the most allowed; it is left out"
                spent.append(name)
                continue
            wait = self._pause(plan, config, recent) - now if not plan.at_once else 0.0
            if plan.group in busy and serves(name):
                plan.text = f"another of the group {plan.group} is being restarted"
            elif wait > 0:
                plan.text = f"in {wait / 1000:.0f} s, after {recent} within the last hour"
            else:
                busy.add(plan.group)
                plan.stage, plan.since, plan.text = Stage.ORDERED, now, ""
                plan.hastened = plan.inherited = False
                plan.begun.append(now)
                orders.append(Order(name, plan.failure))
        return orders, spent

    def carried_out(self, backend: str, ok: bool, text: str, now: float) -> None:
        """The actuator has answered."""
        plan = self.plans.get(backend)
        if plan is None or plan.stage is not Stage.ORDERED:
            return
        plan.stage, plan.since, plan.text = (Stage.AWAITED if ok else Stage.WANTED), now, text
        plan.tried, plan.witnessed = not ok, True

    def abandon(self, backend: str, now: float) -> None:
        """The restart is not carried out after all; it counts all the same."""
        plan = self.plans.get(backend)
        if plan is not None:
            plan.stage, plan.since, plan.text = Stage.NONE, now, ""

    def set_aside(self, backend: str, now: float) -> bool:
        """Its engine is started with other arguments instead; returns False where the actuator is at work."""
        if self.stage(backend) is Stage.ORDERED:
            return False
        self.abandon(backend, now)
        return True

    def serves(self, backend: str, now: float) -> bool:
        """The engine serves (again); returns whether that ends a restart."""
        plan = self.plans.get(backend)
        if plan is None or plan.stage not in {Stage.WANTED, Stage.AWAITED}:
            return False
        if plan.stage is Stage.WANTED and plan.failure.cause is not Cause.CRASH:
            # It answers, but what it said or its GPU's error stands.
            return False
        plan.stage, plan.since, plan.text = Stage.NONE, now, ""
        return True

    def overdue(
        self, config: RestartConfig, now: float, is_there: Callable[[str], bool] = lambda _: True
    ) -> list[str]:
        """Backends whose restart did not bring them back in time: they are to be restarted again. `is_there`
        tells whether an engine answers at all."""
        late = []
        for name, plan in self.plans.items():
            if plan.stage is not Stage.AWAITED:
                continue
            patience = float(config.give_up)
            if not plan.witnessed and not is_there(name):
                patience = min(patience, UNWITNESSED_MS)
            if now - plan.since >= patience:
                plan.stage, plan.since, plan.tried, plan.witnessed = Stage.WANTED, now, True, True
                plan.text = f"it did not serve within {patience / 1000:.0f} s of its restart"
                late.append(name)
        return late

    def long(self, config: RestartConfig, now: float) -> dict[str, str]:
        """The restarts that have not ended for long, by backend, in words."""
        found = {}
        for name, plan in self.plans.items():
            age = now - plan.since
            if plan.stage is Stage.NONE or plan.stage is Stage.SPENT or not is_long(age, config):
                continue
            found[name] = f"restart {plan.stage.value} for {age / 1000:.0f} s: {plan.failure.text}"
            if plan.stage is Stage.AWAITED:
                found[name] += f"; it is restarted again after {config.give_up / 1000:.0f} s"
            elif plan.text:
                found[name] += f"; {plan.text}"
        return found

    def bring_back(self, backend: str) -> bool:
        """An operator has mended it: forget what was. Returns whether it got no requests because of it."""
        held = self.holds_out(backend)
        self.plans.pop(backend, None)
        return held

    def keep(self, backends: set[str]) -> None:
        """Forget all other backends."""
        self.plans = {name: plan for name, plan in self.plans.items() if name in backends}

    def dump(self, now: float) -> dict[str, Any]:
        """What another sidecar needs to go on: times as ages."""
        return {
            name: {
                "group": plan.group,
                "stage": plan.stage.value,
                "cause": plan.failure.cause.value,
                "why": plan.failure.text,
                "age_ms": round(now - plan.since),
                "begun_ms": [round(now - at) for at in plan.begun],
                "text": plan.text,
                "tried": plan.tried,
                "witnessed": plan.witnessed and plan.stage is not Stage.ORDERED,
                "hastened": plan.hastened,
            }
            for name, plan in self.plans.items()
            if plan.stage is not Stage.NONE or plan.recent(now)
        }

    def restore(self, state: dict[str, Any], now: float) -> None:
        """Take over a dump. An order whose carrying out nobody saw end is awaited, not as long as others.
        Raises ValueError, KeyError, TypeError on a strange one."""
        plans: dict[str, Plan] = {}
        for name, value in state.items():
            stage = Stage(value["stage"])
            plans[name] = Plan(
                group=str(value["group"]),
                stage=Stage.AWAITED if stage is Stage.ORDERED else stage,
                failure=Failure(Cause(value["cause"]), str(value["why"])),
                since=now - float(value["age_ms"]),
                begun=deque(now - float(age) for age in value["begun_ms"]),
                text=str(value["text"]),
                tried=bool(value.get("tried", False)),
                witnessed=bool(value.get("witnessed", True)),
                hastened=bool(value.get("hastened", False)),
                inherited=True,
            )
        self.plans = plans

    def _pause(self, plan: Plan, config: RestartConfig, recent: int) -> float:
        """When the next restart may begin at the earliest."""
        if not recent:
            return float("-inf")
        pause = min(config.back_off * 2.0 ** (recent - 1), float(config.back_off_most))
        return plan.begun[-1] + pause
