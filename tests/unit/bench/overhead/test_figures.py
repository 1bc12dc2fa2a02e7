"""The arithmetic of the overhead bench."""

from __future__ import annotations

import math

import pytest

from bench.overhead import figures
from bench.overhead.streams import StreamSample
from bench.overhead.wrk import Sample


def sample(per_second: float, p50_us: float, cpu_us: float) -> Sample:
    return Sample(
        requests=1000, per_second=per_second, p50_us=p50_us, p99_us=2 * p50_us, cpu_us=cpu_us, errors=0
    )


ROUNDS = [
    {"plain": sample(20_000, 50, 27), "ours": sample(16_000, 58, 40), "vllm-router": sample(8_000, 140, 65)},
    # A slow minute: everything takes twice as long.
    {
        "plain": sample(10_000, 100, 54),
        "ours": sample(8_000, 118, 80),
        "vllm-router": sample(4_000, 280, 130),
    },
    {"plain": sample(20_000, 50, 27), "ours": sample(12_000, 60, 38), "vllm-router": sample(8_000, 140, 65)},
]


def test_a_quantile_is_the_nearest_rank():
    assert figures.quantile([3, 1, 2, 4], 0.5) == 2
    assert figures.quantile(list(range(1, 101)), 0.99) == 99
    assert figures.quantile([5], 0.99) == 5
    assert math.isnan(figures.quantile([], 0.5))


def test_ratios_are_taken_within_a_round_and_their_median_is_told_with_the_spread():
    ours = figures.requests(ROUNDS, "ours", "plain")
    assert ours["throughput_vs_plain"] == 0.8
    assert ours["throughput_vs_plain_spread"] == [0.6, 0.8]
    assert ours["p50_added_us"] == 10
    assert ours["cpu_us_added"] == 13
    assert ours["cpu_us_added_spread"] == [11, 26]
    assert ours["cpu_vs_vllm_router"] == pytest.approx(40 / 65, abs=1e-3)


def test_plain_nginx_is_not_compared_with_itself():
    plain = figures.requests(ROUNDS, "plain", "plain")
    assert "cpu_us_added" not in plain
    assert plain["cpu_us"] == 27
    assert plain["rounds"] == 3


def test_a_round_in_which_the_rival_did_not_run_counts_for_what_did():
    rounds = [*ROUNDS[:1], {"plain": ROUNDS[1]["plain"], "ours": ROUNDS[1]["ours"]}]
    ours = figures.requests(rounds, "ours", "plain")
    assert ours["cpu_us_added"] == 19.5
    assert ours["cpu_vs_vllm_router_spread"] == [pytest.approx(0.615), pytest.approx(0.615)]


def test_the_quantiles_of_streams_are_compared_round_by_round():
    def streamed(first: list[float], gaps: list[float]) -> StreamSample:
        return StreamSample(first_ms=first, gaps_ms=gaps, events=100, cpu_us=20)

    rounds = [
        {
            "plain": streamed([0.2] * 100, [10.0] * 100),
            "ours": streamed([0.3] * 98 + [0.6] * 2, [10.0] * 100),
        },
        {"plain": streamed([0.2] * 100, [10.0] * 100), "ours": streamed([0.3] * 100, [11.0] * 100)},
        # A disturbed round moves the spread, not the figure.
        {"plain": streamed([60.0] * 100, [50.0] * 100), "ours": streamed([0.3] * 100, [10.0] * 100)},
    ]
    ours = figures.streams(rounds, "ours", "plain")
    assert ours["first_byte_added_ms_p50"] == pytest.approx(0.1)
    assert ours["first_byte_added_ms_p99"] == pytest.approx(0.1)
    assert ours["first_byte_added_ms_p99_spread"] == [pytest.approx(-59.7), pytest.approx(0.4)]
    assert ours["gap_vs_plain"] == 1.0
    assert ours["gap_vs_plain_spread"] == [0.2, 1.1]
    assert ours["streams"] == 300
