"""The arithmetic of the overhead bench: what a system adds to plain nginx, round by round, then the middle.

Only ratios and differences within one round are compared: on a shared machine absolute speeds wander by a
factor of two from minute to minute, while neighbours in a round see the same machine.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import median

from bench.overhead.streams import StreamSample
from bench.overhead.wrk import Sample

Figures = dict[str, float | int | list[float] | None]

VLLM_ROUTER = "vllm-router"


def quantile(values: Sequence[float], share: float) -> float:
    """Return the nearest-rank quantile of `values` (0 < share <= 1); NaN when there are none."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _middle(figures: Figures, name: str, values: Sequence[float], digits: int = 3) -> None:
    """Put the median of `values` under `name` and their least and greatest under `name_spread`."""
    if values:
        figures[name] = round(median(values), digits)
        figures[f"{name}_spread"] = [round(min(values), digits), round(max(values), digits)]


def requests(rounds: Sequence[Mapping[str, Sample]], system: str, plain: str | None) -> Figures:
    """Return the figures of one system in one case of fixed answers.

    Args:
        rounds: per round, the sample of every system that ran in it.
        system: the system that is told.
        plain: the plain nginx that it is compared with; None when it has no equal.
    """
    mine = [each[system] for each in rounds if system in each]
    figures: Figures = {"rounds": len(mine), "errors": sum(sample.errors for sample in mine)}
    _middle(figures, "requests_per_s", [sample.per_second for sample in mine], 0)
    _middle(figures, "p50_us", [sample.p50_us for sample in mine], 1)
    _middle(figures, "p99_us", [sample.p99_us for sample in mine], 1)
    _middle(figures, "cpu_us", [sample.cpu_us for sample in mine], 2)
    if plain and plain != system:
        pairs = [(each[system], each[plain]) for each in rounds if system in each and plain in each]
        _middle(figures, "throughput_vs_plain", [a.per_second / b.per_second for a, b in pairs])
        _middle(figures, "p50_added_us", [a.p50_us - b.p50_us for a, b in pairs], 1)
        _middle(figures, "cpu_us_added", [a.cpu_us - b.cpu_us for a, b in pairs], 2)
    if system != VLLM_ROUTER:
        rivals = [
            (each[system], each[VLLM_ROUTER]) for each in rounds if system in each and VLLM_ROUTER in each
        ]
        _middle(figures, "cpu_vs_vllm_router", [a.cpu_us / b.cpu_us for a, b in rivals if b.cpu_us > 0])
    return figures


def streams(rounds: Sequence[Mapping[str, StreamSample]], system: str, plain: str | None) -> Figures:
    """Return the figures of one system in the case of streams.

    `first_byte_added_ms_p99` is the difference of the 99 % quantiles of a round, `gap_vs_plain` the ratio
    of the 99 % quantiles of its gaps between events; as everywhere, their median over the rounds counts.
    """
    mine = [each[system] for each in rounds if system in each]
    figures: Figures = {
        "rounds": len(mine),
        "streams": sum(len(sample.first_ms) for sample in mine),
        "errors": sum(sample.broken for sample in mine),
    }
    _middle(figures, "first_byte_ms_p50", [quantile(sample.first_ms, 0.5) for sample in mine])
    _middle(figures, "first_byte_ms_p99", [quantile(sample.first_ms, 0.99) for sample in mine])
    _middle(figures, "gap_ms_p50", [quantile(sample.gaps_ms, 0.5) for sample in mine])
    _middle(figures, "gap_ms_p99", [quantile(sample.gaps_ms, 0.99) for sample in mine])
    _middle(figures, "cpu_us_per_event", [sample.cpu_us for sample in mine], 2)
    if plain and plain != system:
        pairs = [(each[system], each[plain]) for each in rounds if system in each and plain in each]
        for share, name in ((0.5, "first_byte_added_ms_p50"), (0.99, "first_byte_added_ms_p99")):
            _middle(figures, name, [_first(a, share) - _first(b, share) for a, b in pairs])
        _middle(figures, "gap_vs_plain", [_gap(a) / _gap(b) for a, b in pairs])
        _middle(figures, "cpu_us_added_per_event", [a.cpu_us - b.cpu_us for a, b in pairs], 2)
    return figures


def _first(sample: StreamSample, share: float) -> float:
    return quantile(sample.first_ms, share)


def _gap(sample: StreamSample) -> float:
    return quantile(sample.gaps_ms, 0.99)
