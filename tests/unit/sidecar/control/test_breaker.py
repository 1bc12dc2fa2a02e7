"""Levels 1 and 2 of the breaker."""

from __future__ import annotations

from sidecar.control.breaker import Breaker
from sidecar.control.model_load import BackendUse, Waiting, model_load
from tokenweir.config.control import BreakerConfig
from tokenweir.config.limits import QueueConfig
from tokenweir.contract.records import Priority

LONG = Waiting(5, {Priority.NORMAL: 16_000})
SHORT = Waiting(5, {Priority.NORMAL: 14_000})
TICK = 500


def load(share, waiting=LONG):
    return model_load([BackendUse(use=share, capacity=1000, usable=True)], waiting)


def run(breaker, share, seconds, begin, waiting=LONG, *, config=None):
    """Ticks for so long; returns when levels 1 and 2 switched."""
    switched = []
    now = begin
    while now < begin + 1000 * seconds:
        before = breaker.refuse_new.on, breaker.drop_low.on
        breaker.update(load(share, waiting), config or BreakerConfig(), QueueConfig().longest_wait, now)
        after = breaker.refuse_new.on, breaker.drop_low.on
        if after != before:
            switched.append((now, after))
        now += TICK
    return switched


def test_full_memory_for_five_seconds_with_a_spent_queue_refuses_new_sessions():
    assert run(Breaker(), 0.92, 20, 0) == [(5000, (True, False))]


def test_fuller_still_drops_low_priority_too():
    assert run(Breaker(), 0.96, 20, 0) == [(5000, (True, True))]


def test_as_long_as_the_queue_serves_in_time_nothing_is_refused():
    breaker = Breaker()
    assert run(breaker, 0.97, 60, 0, SHORT) == []
    assert run(breaker, 0.97, 2, 60_000, LONG) == [(60_000, (True, True))]


def test_a_short_peak_changes_nothing():
    breaker = Breaker()
    run(breaker, 0.97, 4.5, 0)
    assert run(breaker, 0.80, 60, 4500) == []


def test_a_level_is_left_below_its_threshold_less_the_release():
    breaker = Breaker()
    run(breaker, 0.92, 20, 0)
    assert run(breaker, 0.87, 60, 20_000) == []
    assert run(breaker, 0.84, 5, 80_000) == [(80_000, (False, False))]


def test_a_level_holds_for_its_shortest_stay():
    breaker = Breaker()
    run(breaker, 0.92, 6, 0)
    assert run(breaker, 0.50, 20, 6000) == [(15_000, (False, False))]


def test_a_load_that_swings_about_the_threshold_does_not_flap():
    breaker = Breaker()
    run(breaker, 0.92, 6, 0)
    for k in range(120):
        run(breaker, 0.92 if k % 2 else 0.88, 0.5, 6000 + 500 * k)
    assert breaker.refuse_new.changes == 1


def test_without_a_reading_nothing_is_claimed():
    breaker = Breaker()
    assert run(breaker, None, 30, 0) == []
    run(breaker, 0.92, 30, 30_000)
    assert breaker.refuse_new.on
    assert run(breaker, None, 5, 60_000) == [(60_000, (False, False))]


def test_the_literal_rule_acts_at_once_and_asks_no_queue():
    config = BreakerConfig(rule="literal")
    assert run(Breaker(), 0.91, 5, 0, Waiting(), config=config) == [(0, (True, False))]
    assert run(Breaker(), 0.96, 5, 0, Waiting(), config=config) == [(0, (True, True))]
    assert run(Breaker(), 0.90, 5, 0, Waiting(), config=config) == []


def test_switched_off_it_does_nothing_and_ends_what_held():
    breaker = Breaker()
    run(breaker, 0.97, 20, 0)
    off = BreakerConfig(enabled=False)
    assert run(breaker, 0.97, 20, 20_000, config=off) == [(20_000, (False, False))]


def test_the_reason_names_the_load_and_the_threshold():
    breaker = Breaker()
    run(breaker, 0.92, 6, 0)
    assert breaker.reasons == [
        "level 1: new sessions are refused: memory use 92% over 1 of 1 backends, 5 waiting, threshold 90%"
    ]
