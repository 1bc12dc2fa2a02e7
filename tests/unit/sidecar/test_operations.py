"""`sidecar/operations.py`: at most one of a kind for each backend."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from sidecar.actuators.actuator import Action, Outcome
from sidecar.control.alerts import Kind
from sidecar.control.failures import Cause, Failure
from sidecar.control.loop import Orders
from sidecar.control.restart import Order
from sidecar.operations import Hands, Operations
from sidecar.telemetry.health import Look
from tests.unit.sidecar.control.scene import Scene, fleet

RESTART = Orders(restarts=[Order("a", Failure(Cause.CRASH, "it died"))])


class Recovery:
    """Notes what is reported; `then` is done in the loop's next turn, before the task is cleared away."""

    def __init__(self) -> None:
        self.reports = 0
        self.then: Any = None

    def restarted(self, *_: Any) -> None:
        self.reports += 1
        if self.then:
            asyncio.get_running_loop().call_soon(self.then)
            self.then = None


def operations(recovery: Recovery) -> Operations:
    """Of a backend that has no actuator, so that each restart fails at once."""
    nothing: Any = None
    loop: Any = SimpleNamespace(recovery=recovery)
    return Operations(nothing, loop, Hands(lambda _: None, lambda _: None, lambda: nothing, lambda: None))


async def test_one_that_runs_is_not_begun_again() -> None:
    recovery = Recovery()
    made = operations(recovery)
    made.carry_out(RESTART)
    made.carry_out(RESTART)
    assert made.under_way() == ["restart a"]
    await asyncio.sleep(0.01)
    assert (recovery.reports, made.under_way()) == (1, [])


async def test_what_has_just_reported_its_end_can_be_ordered_again() -> None:
    recovery = Recovery()
    made = operations(recovery)
    recovery.then = lambda: made.carry_out(RESTART)
    made.carry_out(RESTART)
    await asyncio.sleep(0.01)
    assert (recovery.reports, made.under_way()) == (2, [])


async def test_a_dry_run_is_not_told_as_a_restart() -> None:
    class Dry:
        async def restart(self, _: str) -> Outcome:
            return Outcome(Action.RESTART, True, "dry run: would restart it", 0.0, dry_run=True)

    nothing: Any = None
    recovery: Any = SimpleNamespace(not_restarted=lambda *_: None)
    loop: Any = SimpleNamespace(recovery=recovery)
    actuator: Any = Dry()
    hands = Hands(lambda _: actuator, lambda _: None, lambda: nothing, lambda: None)
    with capture_logs() as lines:
        Operations(nothing, loop, hands).carry_out(RESTART)
        await asyncio.sleep(0.01)
    told = {"event": "dry_run", "backend": "a", "action": "restart", "detail": "dry run: would restart it"}
    assert lines == [told | {"log_level": "info"}]


class Changing:
    """A backend `a` whose engine is started with other arguments by an actuator that a test answers for."""

    def __init__(self) -> None:
        self.stage: Scene = fleet("a", "b", restart={"give_up": "1s"})
        self.applied: list[list[str]] = []
        self.outcome = Outcome(Action.APPLY, True, "done", 1.0)
        self.superseded = False
        self.kept: list[str | None] = []
        actuator: Any = self
        hands = Hands(
            lambda _: actuator,
            lambda _: None,
            lambda: self.stage.config,
            lambda: None,
            lambda: self.superseded,
        )
        self.operations = Operations(self.stage.fleet, self.stage.loop, hands)

    async def apply(self, arguments: list[str], _: str) -> Outcome:
        """As in `Actuator`."""
        self.applied.append(list(arguments))
        return self.outcome

    def order(self, unkept: str | None = None, deadline_ms: float = 60_000) -> None:
        """Order the change; `unkept` is what cannot be kept of it."""

        def changed() -> str | None:
            self.kept.append(unkept)
            return unkept

        assert self.operations.change_variant("a", ["--fast"], deadline_ms, changed)

    async def end(self) -> str | None:
        """Wait for its end; the alert's text."""
        async with asyncio.timeout(30):
            while self.operations.under_way():  # noqa: ASYNC110  (an end has no event)
                await asyncio.sleep(0.01)
        assert self.stage["a"].changing is None
        alert = self.stage.loop.alerts.standing.get((Kind.CHANGE_FAILED, "a"))
        return None if alert is None else alert.text


@pytest.fixture
def changing(monkeypatch: pytest.MonkeyPatch) -> Changing:
    monkeypatch.setattr("sidecar.operations.LOOK_S", 0.01)
    return Changing()


async def come_up_anew(changing: Changing) -> None:
    """The engine goes, and another process comes up."""
    while not changing.applied:  # noqa: ASYNC110  (the actuator has no event)
        await asyncio.sleep(0.01)
    for look in (Look.REFUSED, Look.REFUSED, Look.OK, Look.OK, Look.OK):
        changing.stage.looks["a"] = look
        changing.stage.tokens["a"] = 0.0
        changing.stage.tick()
        await asyncio.sleep(0.03)


async def test_a_change_ends_when_another_process_serves(changing: Changing) -> None:
    changing.order()
    await come_up_anew(changing)
    assert await changing.end() is None
    assert (changing.applied, changing.kept) == ([["--fast"]], [None])


async def test_a_change_that_its_actuator_refuses_is_told(changing: Changing) -> None:
    changing.outcome = Outcome(Action.APPLY, False, "no such container", 1.0)
    changing.order()
    assert await changing.end() == "a change to --fast: no such container"
    assert changing.kept == []


async def test_a_change_after_which_nothing_new_serves_is_told(changing: Changing) -> None:
    changing.order()
    assert await changing.end() == (
        "a change to --fast: it shows no sign of a new process 1 s after it was started with them"
    )


async def test_what_could_not_be_kept_of_a_change_is_told_and_the_engine_is_waited_for(
    changing: Changing,
) -> None:
    changing.order(unkept="the disk is full")
    await come_up_anew(changing)
    assert await changing.end() == "a change to --fast: the disk is full"
    changing.order()
    await come_up_anew(changing)
    assert await changing.end() is None, "the next change ends it"


async def test_a_backend_that_is_replaced_before_its_change_is_left_alone(changing: Changing) -> None:
    moved = changing.stage["a"].config.model_copy(update={"url": "http://10.0.0.9:1"})
    changing.stage.gateways.leases.clear()
    changing.order(deadline_ms=200)
    await asyncio.sleep(0.02)
    changing.stage.fleet.set_members([moved, changing.stage["b"].config], set())
    assert "was removed or replaced meanwhile" in (await changing.end() or "")
    assert changing.applied == []


async def test_who_does_not_lead_any_more_leaves_the_engine_to_the_next(changing: Changing) -> None:
    changing.stage.gateways.leases.clear()
    changing.order()
    await asyncio.sleep(0.05)
    assert changing.applied == [], "with no gateway nobody knows what is in flight"
    changing.superseded = True
    assert await changing.end() is None
    assert changing.applied == []


async def test_a_start_that_meets_an_error_is_reported() -> None:
    class Broken:
        async def start(self, _: str) -> Outcome:
            raise RuntimeError("a bug of ours")

    reports: list[Any] = []
    loop: Any = SimpleNamespace(pools=SimpleNamespace(started=lambda *told: reports.append(told[:3])))
    nothing: Any = None
    broken: Any = Broken()
    for actuator in (broken, None):
        hands = Hands(lambda _, a=actuator: a, lambda _: None, lambda: nothing, lambda: None)  # type: ignore[misc]
        Operations(nothing, loop, hands).carry_out(Orders(starts=["s"]))
        await asyncio.sleep(0.01)
    assert reports == [("s", False, "RuntimeError: a bug of ours"), ("s", False, "it has no actuator")]
