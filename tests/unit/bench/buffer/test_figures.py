"""`bench/buffer`: what its figures are made of."""

from __future__ import annotations

import pytest

from bench.buffer.client import Answer, Hint
from bench.buffer.figures import longest_gap, of_run
from bench.buffer.overload import Run, Sent
from bench.buffer.single import percentile_of_buckets
from bench.buffer.traffic import FLOOD, KEYS, PRIORITIES, Request, requests


def sent(
    at: float, wait: float, *, key: str = KEYS[1], status: int = 200, estimate: float | None = None
) -> Sent:
    request = Request("r", at, key, PRIORITIES[key], b"", 10)
    answer = Answer(sent=at, ended=at + wait + 1, status=status)
    if status == 200:
        answer.wait_ms = round(1000 * wait)
    if estimate is not None:
        answer.hints.append(Hint(at, 1, estimate, None))
    return Sent(request, answer)


def test_the_longest_gap_is_the_time_without_a_served_one_while_somebody_waited() -> None:
    assert longest_gap([sent(0, 1), sent(0, 4), sent(20, 0)], 30) == pytest.approx(3)
    assert longest_gap([sent(0, 25, status=429), sent(0, 2)], 20) == pytest.approx(18)


def test_an_estimate_is_judged_by_the_wait_that_came_true() -> None:
    run = Run(0, 100, [sent(0, 10, estimate=8), sent(0, 10, estimate=4), sent(1, 0.2, estimate=0.5)])
    figures = of_run(run)
    assert figures["eta_median_error"] == pytest.approx(0.3)
    assert figures["eta_within_2x"] == pytest.approx(2 / 3, abs=0.001)


def test_one_that_was_refused_was_not_served_within_its_estimate() -> None:
    run = Run(0, 100, [sent(0, 10, estimate=9), sent(0, 10, estimate=9, status=429)])
    assert of_run(run)["eta_within_2x"] == 0.5


def test_a_percentile_of_a_histogram_is_spread_within_its_bucket() -> None:
    series = 'tokenweir_x_bucket{model="m",le="%s"}'
    metrics = {series % "0.001": 50.0, series % "0.003": 100.0, series % "+Inf": 100.0}
    assert percentile_of_buckets(metrics, "tokenweir_x", 0.75) == pytest.approx(2)
    assert percentile_of_buckets({}, "tokenweir_x", 0.75) is None


def test_the_others_ask_the_same_whether_there_is_a_flood_or_not() -> None:
    def others(flood: float) -> list[tuple[float, str, bytes, int]]:
        listed = requests(30, 5, flood, 1, "x")
        return [(one.at, one.key, one.body, one.output) for one in listed if one.key != FLOOD]

    assert others(0) == others(8)
    assert {PRIORITIES[key] for key in KEYS} == {"high", "normal", "low"}
