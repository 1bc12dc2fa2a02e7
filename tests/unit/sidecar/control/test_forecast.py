"""Where a figure will be."""

from __future__ import annotations

import pytest

from sidecar.control.forecast import Trend


def line(slope, seconds=60, start=1000.0):
    trend = Trend()
    for k in range(seconds + 1):
        trend.observe(start + slope * k, 1000.0 * k)
    return trend, start + slope * seconds, 1000.0 * seconds


def test_a_line_is_prolonged():
    trend, value, now = line(10)
    assert trend.forecast(value, now, 60_000) == pytest.approx(value + 600)


def test_but_by_no_more_than_twice_what_was_seen():
    trend, value, now = line(10, seconds=20)
    assert trend.forecast(value, now, 600_000) == pytest.approx(value + 400)


def test_a_falling_one_is_taken_to_stay():
    trend, value, now = line(-10)
    assert trend.forecast(value, now, 60_000) == value


def test_a_few_looks_are_no_line():
    trend = Trend()
    for k in range(4):
        trend.observe(100.0 * k, 1000.0 * k)
    assert trend.forecast(300, 3000, 60_000) == 300


def test_looks_that_follow_at_once_count_once():
    trend = Trend()
    for k in range(10_000):
        trend.observe(1.0, 10.0 * k)
    assert len(trend._points) <= 61
