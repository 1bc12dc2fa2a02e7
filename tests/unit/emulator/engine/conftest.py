"""An engine whose times are easy to reckon with."""

from collections.abc import Callable
from typing import Any

import pytest

from emulator.engine import Engine, Exhaustion, Limits
from tests.unit.emulator.engine.engines import PLAIN
from tokenweir.facts import StepTime


@pytest.fixture
def make_engine() -> Callable[..., Engine]:
    """Builds an engine with 10 ms steps that plans each step when it starts."""

    def make(
        capacity: int = 16_000,
        exhaustion: Exhaustion = Exhaustion.PREEMPT,
        time: StepTime = PLAIN,
        **limits: Any,
    ) -> Engine:
        return Engine(time, capacity, exhaustion, Limits(**{"async_scheduling": False, **limits}))

    return make


@pytest.fixture
def run() -> Callable[[Engine], float]:
    """Runs an engine until it is idle, from change to change, and returns the time."""

    def to_end(engine: Engine) -> float:
        while not engine.idle:
            engine.advance(engine.next_change())
        return engine.now

    return to_end
