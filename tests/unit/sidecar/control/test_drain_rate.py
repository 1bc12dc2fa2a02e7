"""What a refused client is told to wait."""

from __future__ import annotations

import pytest

from sidecar.control.drain_rate import DrainRate


def steady(per_second=1000.0, seconds=60):
    rate = DrainRate()
    for k in range(seconds * 10):
        rate.freed(per_second / 10, 100.0 * k)
    return rate, 1000.0 * seconds


def test_the_rate_is_what_is_freed_a_second():
    rate, now = steady()
    assert rate.per_second(now) == pytest.approx(1000, rel=0.05)


def test_a_young_rate_is_not_told_too_low():
    rate, now = steady(seconds=3)
    assert rate.per_second(now) == pytest.approx(1000, rel=0.1)


def test_the_wait_is_what_must_be_freed_over_what_is():
    rate, now = steady()
    assert rate.retry_after_ms(10_000, now) == pytest.approx(10_000, rel=0.05)


def test_the_wait_has_bounds():
    rate, now = steady()
    assert rate.retry_after_ms(0, now) == 1000
    assert rate.retry_after_ms(1e9, now) == 60_000


def test_before_anything_ended_a_few_seconds_are_told():
    assert DrainRate().retry_after_ms(10_000, 0) == 5000


def test_a_rate_of_long_ago_fades():
    rate, now = steady()
    assert rate.per_second(now + 60_000) < 30
