"""The engine's clock."""

import pytest

from emulator.clock import EngineClock


class Wall:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.seconds = 50.0

    def __call__(self) -> float:
        return self.seconds


def test_it_begins_at_zero_and_runs_at_its_speed() -> None:
    wall = Wall()
    clock = EngineClock(wall, speed=10)
    assert clock.now() == 0
    wall.seconds += 0.2
    assert clock.now() == pytest.approx(2000)
    assert clock.wall_seconds(2000) == pytest.approx(0.2)


def test_time_that_passes_while_it_is_stopped_is_lost() -> None:
    wall = Wall()
    clock = EngineClock(wall)
    wall.seconds += 1
    clock.stop()
    wall.seconds += 100
    assert clock.now() == pytest.approx(1000)
    clock.go()
    clock.go()
    wall.seconds += 1
    assert clock.now() == pytest.approx(2000)
