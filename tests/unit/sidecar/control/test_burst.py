"""Burst mode."""

from __future__ import annotations

import pytest

from sidecar.control.burst import Burst
from sidecar.control.model_load import BackendUse, Waiting, model_load
from tokenweir.config.control import BurstConfig
from tokenweir.contract.records import Priority

CONFIG = BurstConfig()
WAITS = Waiting(3, {Priority.NORMAL: 50})


def load(share=0.5, waiting=None):
    return model_load([BackendUse(use=share, capacity=1000, usable=True)], waiting or Waiting())


def run(burst, per_second, seconds, begin, seen=None, *, config=CONFIG):
    """Follows arrivals for so long; returns (ms since `begin`, mode) of each switch."""
    switched = []
    for k in range(int(seconds * 4)):
        now = begin + 250.0 * (k + 1)
        burst.arrived(round(per_second / 4), now)
        if burst.update(seen or load(), config, now):
            switched.append((now - begin, burst.mode.on))
    return switched


@pytest.fixture
def usual() -> Burst:
    """A minute of 40 requests a second."""
    burst = Burst()
    assert run(burst, 40, 60, 0) == []
    return burst


def test_a_fivefold_rate_on_a_loaded_fleet_begins_it_within_half_a_second(usual):
    (begun, on), *_ = run(usual, 200, 5, 60_000, load(0.75))
    assert on
    assert begun <= 500
    assert "answers of at most 256 tokens" in usual.reason


def test_requests_that_wait_are_load_enough(usual):
    assert run(usual, 200, 2, 60_000, load(0.2, WAITS))


def test_a_fleet_with_room_degrades_nobody(usual):
    assert run(usual, 200, 10, 60_000, load(0.6)) == []


def test_the_literal_rule_asks_for_no_load(usual):
    assert run(usual, 200, 2, 60_000, load(0.1), config=BurstConfig(rule="literal"))


def test_twice_the_rate_is_no_burst(usual):
    assert run(usual, 100, 20, 60_000, load(0.9, WAITS)) == []


def test_from_one_request_to_three_is_no_burst():
    burst = Burst()
    for k in range(240):
        burst.arrived(1 if k % 4 == 0 else 0, 250.0 * k)
        burst.update(load(0.9, WAITS), CONFIG, 250.0 * k)
    assert run(burst, 4, 3, 60_000, load(0.9, WAITS)) == []
    assert run(burst, 40, 3, 63_000, load(0.9, WAITS))


def test_it_ends_when_the_rate_is_back_but_not_before_its_stay(usual):
    run(usual, 200, 5, 60_000, load(0.75))
    ((ended, on),) = run(usual, 40, 30, 65_000, load(0.75))
    assert not on
    assert 5000 <= ended <= 11_000


def test_while_it_only_holds_on_its_reason_says_that_it_is_about_to_end(usual):
    run(usual, 200, 5, 60_000, load(0.75))
    assert usual.reason.startswith("burst: 200.0 requests/s")
    run(usual, 0, 2, 65_000, load(0.75))
    assert usual.mode.on
    assert usual.reason.startswith("burst, about to end: ")


def test_it_ends_when_the_fleet_is_at_ease_though_the_rate_stays(usual):
    run(usual, 200, 5, 60_000, load(0.75))
    ((_, on),) = run(usual, 200, 30, 65_000, load(0.5))
    assert not on


def test_a_swinging_rate_does_not_flap(usual):
    for k in range(40):
        run(usual, 200 if k % 2 == 0 else 90, 1, 60_000 + 1000 * k, load(0.75))
    assert usual.mode.changes <= 1


def test_switched_off_there_is_none(usual):
    assert run(usual, 400, 5, 60_000, load(0.9, WAITS), config=BurstConfig(enabled=False)) == []
