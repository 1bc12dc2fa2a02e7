"""`lua/tokenweir/core/prediction/output_distribution.lua`."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.readers import CORE

DISTRIBUTION = CORE.require("tokenweir.core.prediction.output_distribution")
STEPS = CORE.steps
DISTANCES = [(k + 0.5) / STEPS for k in range(STEPS)]
MEDIAN = math.log(101)


def shape(low: list[float] | None = None, high: list[float] | None = None) -> Any:
    table = CORE.require("tokenweir.core.prediction.output_distribution")
    to_lua = CORE._to_lua
    return table.shape(to_lua(low or DISTANCES), to_lua(high or DISTANCES))


SHAPE = shape()


def test_without_a_limit_the_mean_is_that_of_the_points() -> None:
    points = [math.expm1(MEDIAN - d) for d in DISTANCES] + [math.expm1(MEDIAN + 2 * d) for d in DISTANCES]
    mean, sd = DISTRIBUTION.moments(SHAPE, MEDIAN, 1, 2, None)
    average = sum(points) / len(points)
    assert mean == pytest.approx(average)
    assert sd == pytest.approx(math.sqrt(sum((p - average) ** 2 for p in points) / len(points)))


@given(st.floats(0, 14), st.floats(0.05, 3), st.floats(0.05, 3), st.integers(0, 10_000))
def test_a_limit_bounds_mean_and_spread(median: float, lower: float, upper: float, limit: int) -> None:
    mean, sd = DISTRIBUTION.moments(SHAPE, median, lower, upper, limit)
    free, _ = DISTRIBUTION.moments(SHAPE, median, lower, upper, None)
    assert 0 <= mean <= min(limit, free) + 1e-6
    assert 0 <= sd <= limit / 2 + 1e-6


def test_a_limit_below_every_output_leaves_no_doubt() -> None:
    mean, sd = DISTRIBUTION.moments(SHAPE, math.log(10_001), 0.1, 0.1, 16)
    assert (mean, sd) == (pytest.approx(16), pytest.approx(0, abs=1e-4))


@given(st.floats(0, 12), st.floats(0.05, 3), st.floats(0.05, 3), st.integers(0, 100_000))
def test_an_output_that_was_cut_would_have_been_longer(
    median: float, lower: float, upper: float, cut: int
) -> None:
    assert DISTRIBUTION.beyond(SHAPE, median, lower, upper, cut) > math.log1p(cut)


def test_one_that_was_cut_at_once_tells_nothing() -> None:
    expected = sum(MEDIAN - d for d in DISTANCES) + sum(MEDIAN + d for d in DISTANCES)
    assert DISTRIBUTION.beyond(SHAPE, MEDIAN, 1, 1, 0) == pytest.approx(expected / (2 * STEPS))
