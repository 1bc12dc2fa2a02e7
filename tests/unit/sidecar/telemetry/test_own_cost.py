"""What the telemetry itself costs."""

from __future__ import annotations

import pytest

from sidecar.telemetry import own_cost
from sidecar.telemetry.http import Traffic
from sidecar.telemetry.own_cost import OwnCost


class Clock:
    """Wall and CPU time that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = self.cpu_s = 0.0
        monkeypatch.setattr(own_cost, "monotonic_ms", lambda: self.ms)
        monkeypatch.setattr(own_cost.time, "process_time", lambda: self.cpu_s)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_figures_are_of_the_last_whole_window_whoever_asks(clock: Clock) -> None:
    traffic = Traffic()
    cost = OwnCost(traffic, 500)
    clock.ms, clock.cpu_s = 10_000.0, 0.5
    traffic.requests, traffic.bytes = 200, 400_000
    for _ in range(2):
        assert (cost.cpu_share, cost.looks_per_second, cost.bytes_per_tick) == (0.05, 20, 20_000)
    clock.ms, traffic.requests = 15_000.0, 10_000
    assert cost.looks_per_second == 20, "the window is not over"
    clock.ms = 20_000.0
    assert cost.looks_per_second == 980


def test_in_the_first_second_nothing_is_claimed_and_then_a_first_figure(clock: Clock) -> None:
    cost = OwnCost(Traffic(), 500)
    clock.ms, clock.cpu_s = 900.0, 0.9
    assert cost.cpu_share == 0
    clock.ms = 1800.0
    assert cost.cpu_share == pytest.approx(0.5)
