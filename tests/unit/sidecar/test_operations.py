"""`sidecar/operations.py`: at most one of a kind for each backend."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from structlog.testing import capture_logs

from sidecar.actuators.actuator import Action, Outcome
from sidecar.control.failures import Cause, Failure
from sidecar.control.loop import Orders
from sidecar.control.restart import Order
from sidecar.operations import Hands, Operations

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
