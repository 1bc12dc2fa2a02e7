"""Load that came past the gateways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.control.foreign import ForeignLoad
from sidecar.telemetry.readings import EngineReading


def reading(at, running, waiting=0.0, kv_use=None):
    return EngineReading(at=at, source="vllm", running=running, waiting=waiting, kv_use=kv_use)


def test_the_least_of_three_readings_counts():
    foreign = ForeignLoad()
    for at, (running, leased) in enumerate([(9, 4), (7, 4), (8, 4)]):
        foreign.observe(reading(at, running), leased, 400, None)
    load, reason = foreign.now(3)
    assert load.requests == 3
    assert "5, 3, 4" in reason


def test_nothing_is_claimed_before_there_are_three_readings():
    foreign = ForeignLoad()
    foreign.observe(reading(0, 9), 0, 0, None)
    foreign.observe(reading(1, 9), 0, 0, None)
    assert foreign.now(2)[0].requests == 0


def test_waiting_requests_count_too():
    foreign = ForeignLoad()
    for at in range(3):
        foreign.observe(reading(at, 2, waiting=3), 1, 0, None)
    assert foreign.now(3)[0].requests == 4


def test_tokens_are_what_the_kv_memory_holds_beside_the_leases():
    foreign = ForeignLoad()
    for at, use in enumerate([0.5, 0.4, 0.6]):
        foreign.observe(reading(at, 5, kv_use=use), 2, 1000, 10_000)
    assert foreign.now(3)[0].tokens == 3000


def test_where_kv_use_is_not_told_a_foreign_request_holds_what_an_own_one_does():
    foreign = ForeignLoad()
    for at in range(3):
        foreign.observe(reading(at, 5), 2, 600, None)
    assert foreign.now(3)[0].tokens == 900


def test_without_foreign_requests_there_are_no_foreign_tokens():
    foreign = ForeignLoad()
    for at in range(3):
        foreign.observe(reading(at, 2, kv_use=0.9), 2, 10, 10_000)
    load, reason = foreign.now(3)
    assert (load.requests, load.tokens, reason) == (0, 0, None)


def test_old_readings_are_not_believed():
    foreign = ForeignLoad()
    for at in range(3):
        foreign.observe(reading(at, 9), 0, 0, None)
    assert foreign.now(2 + 3001)[0].requests == 0


def test_a_reading_without_load_changes_nothing():
    foreign = ForeignLoad()
    for at in range(3):
        foreign.observe(reading(at, None), 0, 0, None)
    assert foreign.now(3)[0].requests == 0


@given(st.lists(st.integers(0, 50), min_size=3, max_size=30), st.data())
def test_own_requests_are_never_counted_as_foreign_while_one_reading_of_three_is_in_step(loads, data):
    """Whatever two of three readings say through jitter, one that sees only own requests clears it."""
    foreign = ForeignLoad()
    for at, load in enumerate(loads):
        jitter = 0 if at % 3 == 0 else data.draw(st.integers(0, 5))
        foreign.observe(reading(at, load + jitter), load, 0, None)
        assert foreign.now(at)[0].requests == 0


@pytest.mark.parametrize("leased", [5, 50])
def test_more_leased_than_running_is_no_negative_load(leased):
    foreign = ForeignLoad()
    for at in range(3):
        foreign.observe(reading(at, 2), leased, 0, None)
    assert foreign.now(3)[0].requests == 0


@pytest.mark.parametrize(("interval", "until"), [(500, 3000), (5000, 10_000), (60_000, 10_000)])
def test_the_load_is_believed_until_the_next_reading_is_long_due(interval, until):
    foreign = ForeignLoad()
    for number in range(3):
        foreign.observe(reading(number * interval, 5), 2, 600, None)
    assert foreign.now(2 * interval + until)[0].requests == 3
    assert foreign.now(2 * interval + until + 1)[0].requests == 0
