"""When a backend is in rotation."""

from __future__ import annotations

import pytest

from sidecar.control.readiness import RISE_MOST, Readiness
from sidecar.telemetry.health import Look
from tokenweir.contract.records import State


@pytest.fixture
def ready() -> Readiness:
    readiness = Readiness()
    readiness.observe(Look.OK, "", 0)
    return readiness


def test_a_new_backend_starts_and_its_first_good_look_makes_it_ready():
    readiness = Readiness()
    assert readiness.state is State.STARTING
    assert readiness.observe(Look.OK, "", 0)
    assert readiness.state is State.READY


def test_a_model_that_loads_is_starting_however_long_it_takes(ready):
    for moment in range(1000):
        ready.observe(Look.LOADING, "/health answers 503", moment)
    assert ready.state is State.STARTING
    assert "503" in ready.reason
    ready.observe(Look.OK, "", 1000)
    assert ready.state is State.READY


def test_one_bad_look_takes_nobody_out_two_do(ready):
    assert not ready.observe(Look.REFUSED, "connection refused", 500)
    assert ready.state is State.READY
    assert ready.observe(Look.REFUSED, "connection refused", 1000)
    assert (ready.state, ready.reason) == (State.DOWN, "connection refused")


def test_bad_looks_must_follow_each_other(ready):
    for moment in range(10):
        ready.observe(Look.ERROR if moment % 2 else Look.OK, "x", moment)
    assert ready.state is State.READY


def test_a_late_page_is_forgiven_while_requests_end_well(ready):
    for moment in (1000, 3000, 5000):
        ready.observe(Look.LATE, "no answer within 2000 ms", moment, served_at=moment - 500)
    assert ready.state is State.READY
    assert "ended well" in ready.reason
    ready.observe(Look.LATE, "no answer within 2000 ms", 9000, served_at=4500)
    assert ready.state is State.DOWN


def test_a_refused_connection_is_not_forgiven(ready):
    ready.observe(Look.REFUSED, "refused", 1000, served_at=999)
    ready.observe(Look.REFUSED, "refused", 1500, served_at=999)
    assert ready.state is State.DOWN


def test_after_a_fall_one_good_look_is_not_enough(ready):
    ready.observe(Look.REFUSED, "x", 1)
    ready.observe(Look.REFUSED, "x", 2)
    ready.observe(Look.OK, "", 3)
    assert ready.state is State.DOWN
    assert "1 of 2" in ready.reason
    ready.observe(Look.OK, "", 4)
    assert ready.state is State.READY


def rise_after(falls: int, gap: float) -> int:
    readiness, now = Readiness(), 0.0
    readiness.observe(Look.OK, "", now)
    for _ in range(falls):
        now += gap
        readiness.observe(Look.REFUSED, "x", now)
        readiness.observe(Look.REFUSED, "x", now)
        looks = 0
        while readiness.state is not State.READY:
            looks += 1
            readiness.observe(Look.OK, "", now)
    return looks


def test_who_keeps_falling_needs_ever_more_good_looks_but_never_too_many():
    assert [rise_after(falls, 1000) for falls in (1, 2, 3)] == [2, 4, 8]
    assert rise_after(20, 1000) == RISE_MOST


def test_old_falls_are_forgotten():
    assert rise_after(20, 120_000) == 2


def test_a_restart_that_shows_its_loading_comes_back_with_the_first_good_look(ready):
    ready.observe(Look.REFUSED, "x", 1)
    ready.observe(Look.REFUSED, "x", 2)
    ready.observe(Look.LOADING, "503", 3)
    assert ready.state is State.STARTING
    ready.observe(Look.OK, "", 4)
    assert ready.state is State.READY
