"""`bench/scan`."""

from __future__ import annotations

from bench.scan.__main__ import LIMITS, bars, timer
from bench.scan.inputs import inputs


def test_every_case_is_timed_by_the_gateways_own_readers() -> None:
    microseconds = timer()
    for one in inputs(1):
        assert 0 <= microseconds(one, 2) < 1e6


def test_the_same_seed_makes_the_same_inputs() -> None:
    assert inputs(1) == inputs(1)
    assert inputs(1) != inputs(2)


def test_each_bar_is_of_a_case_that_exists() -> None:
    assert set(LIMITS) <= {one.name for one in inputs(1)}
    assert [bar.ok for bar in bars([{"case": {"name": name}, "us": 0.5} for name in LIMITS])] == [True] * len(
        LIMITS
    )
    assert not any(bar.ok for bar in bars([]))
