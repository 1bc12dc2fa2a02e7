"""`lua/tokenweir/core/ratelimit.lua`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

LIMIT = new_runtime().eval(b'require "tokenweir.core.ratelimit"')
MINUTE = 60_000


@pytest.fixture
def ratelimit(require: Callable[[str], Any]) -> Any:
    return require("tokenweir.core.ratelimit")


def test_windows_are_minutes_of_the_clock(ratelimit: Any) -> None:
    assert ratelimit.window(3 * MINUTE + 15_000) == (3, 0.25)


def test_the_previous_minute_counts_as_far_as_the_last_sixty_seconds_reach_into_it(ratelimit: Any) -> None:
    assert ratelimit.estimate(100, 10, 0.25) == 85


def test_up_to_the_limit_is_allowed_and_one_more_is_not(ratelimit: Any) -> None:
    assert ratelimit.check(10, 0, 9, 0, 1)[:2] == (True, 0)
    assert ratelimit.check(10, 0, 10, 0, 1)[:2] == (False, 0)


def test_a_burst_across_the_border_of_two_windows_is_still_one_minutes_burst(ratelimit: Any) -> None:
    assert ratelimit.check(10, 10, 0, 100, 1)[0] is False


def test_the_minute_is_forgotten_when_its_window_has_slid_out(ratelimit: Any) -> None:
    assert ratelimit.check(10, 5, 0, 45_000, 0)[2] == 15_000
    assert ratelimit.check(10, 5, 1, 45_000, 0)[2] == 75_000
    assert ratelimit.check(10, 0, 0, 45_000, 0)[2] == 0


def test_what_is_allowed_counts_in_what_is_told(ratelimit: Any) -> None:
    assert ratelimit.check(5, 0, 0, 45_000, 1) == (True, 4, 75_000, 0)
    assert ratelimit.check(5, 4, 0, 45_000, 1)[:3] == (True, 3, 75_000)


def test_what_is_refused_does_not(ratelimit: Any) -> None:
    assert ratelimit.check(1000, 0, 400, 45_000, 700)[:3] == (False, 600, 75_000)
    assert ratelimit.check(1000, 4000, 0, 45_000, 700)[:3] == (False, 0, 15_000)


def test_a_cost_above_the_limit_is_never_allowed_and_told_no_time(ratelimit: Any) -> None:
    allowed, _, _, retry = ratelimit.check(100, 0, 0, 0, 101)
    assert (allowed, retry) == (False, None)


@given(
    limit=st.integers(1, 10_000),
    previous=st.integers(0, 20_000),
    current=st.integers(0, 20_000),
    at=st.integers(0, MINUTE - 1),
    cost=st.integers(1, 10_000),
)
def test_after_the_told_time_the_cost_fits_and_not_much_sooner(
    limit: int, previous: int, current: int, at: int, cost: int
) -> None:
    assume(cost <= limit)
    allowed, remaining, reset, retry = LIMIT.check(limit, previous, current, at, cost)
    assert 0 <= remaining <= limit
    assert 0 <= reset <= 2 * MINUTE
    if allowed:
        assert retry == 0
        return

    def fits(now: float) -> bool:
        windows = int(now // MINUTE)
        older, newer = ((previous, current), (current, 0), (0, 0))[min(windows, 2)]
        return bool(LIMIT.check(limit, older, newer, now, cost + -1e-6)[0])

    assert fits(at + retry)
    assert retry <= 2 or not LIMIT.check(limit, previous, current, at, cost)[0]
    if retry > 2 and (at + retry - 2) // MINUTE == (at + retry) // MINUTE:
        assert not fits(at + retry - 2) or limit == cost
