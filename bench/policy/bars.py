"""What must hold of the cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isinf
from statistics import stdev
from typing import Any, Final

from bench.policy.policies import ALL
from bench.report import Bar

OWN: Final = "predictive"
LEAST_SPREAD: Final = {"good_share": 0.002, "p99_s": 0.01}
"""Relative differences below which two policies are equal whatever three seeds say: a handful of requests."""
PREDICTIONS_ARE_TRUE: Final = ("clairvoyant", "clairvoyant least work")
SATURATED: Final = ("conv-tight-preempt", "mooncake-8b-preempt")
"""Cells of engines that preempt in which memory is short, or prefixes are shared."""
OWN_BASELINES: Final = ("round_robin", "least_conn", "hybrid")

Figures = Mapping[str, Mapping[str, Any]]
"""Policy -> figures of one cell."""


def rivals(found: Iterable[str]) -> list[str]:
    """The rules of others, and the classic baselines that Tokenweir ships."""
    return [name for name in found if name in ALL and (ALL[name].rival or name in OWN_BASELINES)]


def _ratios(own: Sequence[float], other: Sequence[float]) -> list[float]:
    return [
        1.0 if a == b else inf if b == 0 else 0.0 if isinf(b) else a / b
        for a, b in zip(own, other, strict=True)
    ]


def _spread(ratios: Sequence[float], figure: str) -> float:
    finite = [ratio for ratio in ratios if not isinf(ratio)]
    return max(stdev(finite) if len(finite) > 1 else 0.0, LEAST_SPREAD[figure])


def against_best(found: Figures, figure: str, others: Sequence[str]) -> tuple[str, float, float]:
    """(best of the others, own figure over its, spread over the seeds)."""
    best = (max if figure == "good_share" else min)(others, key=lambda name: found[name][figure])
    ratios = _ratios(found[OWN][f"{figure}_seeds"], found[best][f"{figure}_seeds"])
    own, other = found[OWN][figure], found[best][figure]
    ratio = 1.0 if own == other else own / other if other not in (0, inf) else (inf if other == 0 else 0.0)
    return best, ratio, _spread(ratios, figure)


def of_cell(name: str, found: Figures) -> list[Bar]:
    """The bars of one cell."""
    others = rivals(found)
    bars = []
    if others:
        _, ratio, spread = against_best(found, "good_share", others)
        bars.append(Bar(f"{name}: goodput / best rival's", ratio, ">=", round(1 - spread, 4)))
        _, ratio, spread = against_best(found, "p99_s", others)
        bars.append(Bar(f"{name}: p99 / best rival's", ratio, "<=", round(1 + spread, 4)))
        if name in SATURATED:
            good, slow = (against_best(found, figure, others)[1] for figure in ("good_share", "p99_s"))
            bars.append(Bar(f"{name}: gain in goodput or p99", max(good - 1, 1 - slow), ">=", 0.1))
    true = [row for row in PREDICTIONS_ARE_TRUE if row in found]
    if true:
        best = max(found[row]["good_share"] for row in true)
        bars.append(
            Bar(
                f"{name}: goodput / best with true lengths",
                found[OWN]["good_share"] / best if best else 1.0,
                ">=",
                0.9,
            )
        )
    bars.append(Bar(f"{name}: out of memory", found[OWN]["memory_share"], "<=", 0.003))
    if "predictive, permuted predictions" in found and "least_outstanding" in found:
        permuted, plain = found["predictive, permuted predictions"], found["least_outstanding"]
        ratios = _ratios(permuted["good_share_seeds"], plain["good_share_seeds"])
        bars.append(
            Bar(
                f"{name}: goodput with permuted predictions / least outstanding's",
                permuted["good_share"] / plain["good_share"] if plain["good_share"] else inf,
                ">=",
                round(1 - _spread(ratios, "good_share"), 4),
            )
        )
    bars.append(
        Bar(f"{name}: slowdown of a key below its share / median key's", found[OWN]["worst_key"], "<=", 2)
    )
    return bars
