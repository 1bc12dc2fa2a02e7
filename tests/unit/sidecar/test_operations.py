"""`sidecar/operations.py`: at most one of a kind for each backend."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from sidecar.operations import Hands, Operations


def operations() -> Operations:
    """Of a backend that drains at once and has no actuator."""
    fleet: Any = SimpleNamespace(drain_progress=lambda _: SimpleNamespace(done=True))
    nothing: Any = None
    hands = Hands(lambda _: None, lambda _: None, lambda: nothing, lambda: None)
    return Operations(fleet, nothing, hands)


async def test_one_that_runs_is_not_begun_again() -> None:
    made = operations()
    assert made.change_variant("a", [], 1000, lambda _: None, lambda: None)
    assert not made.change_variant("a", [], 1000, lambda _: None, lambda: None)
    await asyncio.sleep(0.01)
    assert made.under_way() == []


async def test_what_has_just_reported_its_end_can_be_ordered_again() -> None:
    made = operations()
    begun: list[bool] = []

    def tick() -> None:
        begun.append(made.change_variant("a", [], 1000, lambda _: None, lambda: None))

    def drain(on: bool) -> None:
        if not on:
            # The next turn of the loop comes before the task is cleared away.
            asyncio.get_running_loop().call_soon(tick)

    made.change_variant("a", [], 1000, drain, lambda: None)
    await asyncio.sleep(0.01)
    assert begun == [True]
    assert made.under_way() == []
