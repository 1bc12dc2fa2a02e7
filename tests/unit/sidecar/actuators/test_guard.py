"""One action at a time, within its time, written down."""

from __future__ import annotations

import asyncio

import pytest

from sidecar.actuators.actuator import Action, ActuationError
from sidecar.actuators.audit import Audit
from sidecar.actuators.guard import GuardedActuator


class Driver:
    """Does what the test says, when it says so."""

    kind = "command"

    def __init__(self):
        self.orders = []
        self.error = None
        self.go = asyncio.Event()
        self.go.set()

    async def act(self, order):
        self.orders.append(order)
        await self.go.wait()
        if self.error is not None:
            raise self.error
        return f"{order.action} is done"

    def describe(self, order):
        return f"{order.action} it"


@pytest.fixture
def driver():
    return Driver()


@pytest.fixture
def audit(tmp_path):
    return Audit(tmp_path, 100)


@pytest.fixture
def actuator(driver, audit):
    return GuardedActuator("gpu-a", driver, audit, timeout_ms=1000, dry_run=False)


def stages(audit):
    return [(entry.action.value, entry.stage) for entry in reversed(list(audit.entries()))]


async def test_an_action_says_what_was_done_and_is_written_down_with_its_reason(actuator, audit):
    outcome = await actuator.restart("out of memory")
    assert (outcome.action, outcome.ok, outcome.detail) == (Action.RESTART, True, "restart is done")
    assert stages(audit) == [("restart", "begun"), ("restart", "done")]
    begun, done = reversed(list(audit.entries()))
    assert (begun.id, begun.backend, begun.reason) == (done.id, "gpu-a", "out of memory")


async def test_every_action_reaches_the_driver(actuator, driver):
    await actuator.start()
    await actuator.stop()
    await actuator.apply(["--quantization", "fp8"])
    assert [(order.action.value, order.arguments) for order in driver.orders] == [
        ("start", ()),
        ("stop", ()),
        ("apply", ("--quantization", "fp8")),
    ]


async def test_a_failure_is_an_outcome(actuator, driver, audit):
    driver.error = ActuationError("there is no container vllm-a")
    outcome = await actuator.restart()
    assert (outcome.ok, outcome.detail) == (False, "there is no container vllm-a")
    assert stages(audit)[-1] == ("restart", "failed")


async def test_an_error_of_our_own_is_an_outcome_too(actuator, driver):
    driver.error = KeyError("State")
    outcome = await actuator.restart()
    assert not outcome.ok
    assert "KeyError" in outcome.detail
    assert actuator.busy is None


async def test_a_second_action_is_refused_while_one_is_under_way(actuator, driver):
    driver.go.clear()
    first = asyncio.create_task(actuator.restart())
    await asyncio.sleep(0)
    second = await actuator.stop()
    assert (second.ok, second.detail) == (False, "restart is under way since 0 s")
    driver.go.set()
    assert (await first).ok
    assert len(driver.orders) == 1


async def test_the_end_of_a_late_action_can_be_awaited(driver, audit):
    actuator = GuardedActuator("gpu-a", driver, audit, timeout_ms=20, dry_run=False)
    assert await actuator.end() is None
    driver.go.clear()
    late = await actuator.restart()
    assert (late.ok, late.late) == (False, True)
    waiting = [asyncio.create_task(actuator.end()) for _ in range(2)]
    await asyncio.sleep(0.01)
    waiting[0].cancel()
    driver.go.set()
    outcome = await waiting[1]
    assert (outcome.ok, outcome.late, outcome.detail) == (True, False, "restart is done")
    assert stages(audit)[-1] == ("restart", "done")


async def test_an_action_that_outlasts_its_time_is_late_and_still_under_way(driver, audit):
    actuator = GuardedActuator("gpu-a", driver, audit, timeout_ms=20, dry_run=False)
    driver.go.clear()
    outcome = await actuator.restart()
    assert not outcome.ok
    assert "no end within" in outcome.detail
    assert not (await actuator.start()).ok
    driver.go.set()
    await asyncio.sleep(0.01)
    assert stages(audit) == [
        ("restart", "begun"),
        ("restart", "late"),
        ("start", "failed"),
        ("restart", "done"),
    ]
    assert (await actuator.start()).ok


async def test_whoever_waits_may_go_and_the_action_ends_all_the_same(actuator, driver, audit):
    driver.go.clear()
    waiting = asyncio.create_task(actuator.restart())
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert actuator.busy is Action.RESTART
    driver.go.set()
    await asyncio.sleep(0.01)
    assert stages(audit)[-1] == ("restart", "done")


async def test_a_dry_run_does_nothing_and_says_what_it_would_do(driver, audit):
    actuator = GuardedActuator("gpu-a", driver, audit, timeout_ms=1000, dry_run=True)
    outcome = await actuator.restart()
    assert (outcome.ok, outcome.dry_run, outcome.detail) == (True, True, "dry run: would restart it")
    assert driver.orders == []
    assert stages(audit) == [("restart", "dry run")]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ([], "no arguments"),
        (["x"] * 300, "300 arguments"),
        (["x" * 5000], "longer than"),
        (["a\0b"], "zero byte"),
    ],
)
async def test_arguments_that_cannot_be_passed_on_are_refused(actuator, driver, arguments, problem):
    outcome = await actuator.apply(arguments)
    assert not outcome.ok
    assert problem in outcome.detail
    assert driver.orders == []
