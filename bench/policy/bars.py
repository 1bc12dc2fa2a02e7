"""What must hold of the cells."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import inf, isinf
from statistics import stdev
from typing import Any, Final

from bench.policy import article, record
from bench.policy.cells import AT_SHARE, STEPS
from bench.policy.policies import ALL, OWN, OWN_BASELINES, PREDICTIONS_ARE_TRUE
from bench.policy.record import Case
from bench.report import Bar

LEAST_SPREAD: Final = {"good_share": 0.002, "p99_s": 0.01}
"""Relative differences below which two policies are equal whatever three seeds say: a handful of requests."""
MUCH: Final = 0.23
"""What the article's round robin lost for memory."""
FRESH, STALE = "conv-tight-crash", "conv-stale"
SATURATED: Final = ("conv-tight-preempt", "mooncake-8b-preempt")
"""Cells of engines that preempt in which memory is short, or prefixes are shared."""

GOODPUT: Final = "goodput / best rival's"
P99: Final = "p99 / best rival's"
GAIN: Final = "gain in goodput or p99"
WORST_KEY: Final = "slowdown of a key below its share / median key's"
AT_80: Final = "mixed fleet at 80 % load: p99 / best rival's"

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


def best_rival(found: Figures, figure: str) -> str | None:
    """Who has the best of a figure among the others."""
    return (max if figure == "good_share" else min)(
        rivals(found), key=lambda name: found[name][figure], default=None
    )


def against_best(found: Figures, figure: str, own: float) -> float | None:
    """An own figure over the best rival's; None where there is none."""
    best = best_rival(found, figure)
    return None if best is None else _ratios([own], [found[best][figure]])[0]


def gain(found: Figures, good: float, p99: float) -> float | None:
    """By how much goodput or p99, whichever is more, is better than the best rival's."""
    more, less = against_best(found, "good_share", good), against_best(found, "p99_s", p99)
    return None if more is None or less is None else max(more - 1, 1 - less)


def _seeds_spread(found: Figures, figure: str) -> float:
    best = best_rival(found, figure)
    assert best is not None
    return _spread(_ratios(found[OWN][f"{figure}_seeds"], found[best][f"{figure}_seeds"]), figure)


def of_cell(name: str, found: Figures) -> list[Bar]:
    """The bars of one cell."""
    bars = []
    if rivals(found):
        good, p99 = found[OWN]["good_share"], found[OWN]["p99_s"]
        least = 1 - _seeds_spread(found, "good_share")
        bars.append(Bar(f"{name}: {GOODPUT}", against_best(found, "good_share", good), ">=", round(least, 4)))
        most = 1 + _seeds_spread(found, "p99_s")
        bars.append(Bar(f"{name}: {P99}", against_best(found, "p99_s", p99), "<=", round(most, 4)))
        if name in SATURATED:
            bars.append(Bar(f"{name}: {GAIN}", gain(found, good, p99), ">=", 0.1))
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
    bars.append(Bar(f"{name}: {WORST_KEY}", found[OWN]["worst_key"], "<=", 2))
    return bars


def every(cases: Sequence[Case]) -> list[Bar]:
    """All bars of what was recorded."""
    cells = record.cells_of(cases)
    found = [bar for name, rows in cells.items() for bar in of_cell(name, rows)]
    found += _mixed(cases) + _scale(cases) + _article(cases)
    if FRESH in cells and STALE in cells:
        fresh, stale = (cells[name][OWN]["good_share"] for name in (FRESH, STALE))
        found.append(Bar("stale telemetry: share of the goodput lost", 1 - stale / fresh, "<=", 0.05))
    speeds = [figures["per_minute"] for cell in cells.values() for figures in cell.values()]
    if speeds:
        found.append(Bar("simulated requests a minute, slowest", min(speeds), ">=", 20_000))
    return found


def best_at_share(p99: Mapping[str, float]) -> float:
    """The best rival's p99 on the mixed fleet."""
    return min(p99[policy] for policy in rivals(p99))


def _mixed(cases: Sequence[Case]) -> list[Bar]:
    """p99 on the mixed fleet against round robin's and the best rival's."""
    case = record.part(cases, AT_SHARE)
    if case is None:
        return []
    p99 = case["p99_s"]
    own, best = p99[OWN], best_at_share(p99)
    return [
        Bar("mixed fleet at 80 % load: p99 / round robin's", own / p99["round_robin"], "<=", 0.4),
        Bar(AT_80, own / best, "<=", 0.6),
    ]


def _scale(cases: Sequence[Case]) -> list[Bar]:
    """How far coarse steps are off."""
    case = record.part(cases, STEPS)
    if case is None:
        return []
    exact, coarse = case["exact"], case["coarse"]
    return [
        Bar(f"coarse steps: {name} off by", abs(coarse[name] / exact[name] - 1), "<=", 0.03)
        for name in ("good_share", "p99_s")
    ]


def _article(cases: Sequence[Case]) -> list[Bar]:
    """The sustained rate of the tight fleet, and what is lost for memory where round robin loses much."""
    own, plain = (article.sustained(cases, article.TIGHT, policy) for policy in (OWN, "round_robin"))
    if own is None or plain is None:
        return []
    lost = [
        own_share
        for load, own_share in _memory_shares(cases, OWN).items()
        if _memory_shares(cases, "round_robin").get(load, 0.0) >= MUCH
    ]
    return [
        Bar("tight fleet: sustained rate / round robin's", own / plain if plain else None, ">=", 1.7),
        Bar(
            "the article's table: out of memory where round robin loses 23 %",
            max(lost, default=None),
            "<=",
            0.003,
        ),
    ]


def _memory_shares(cases: Sequence[Case], policy: str) -> dict[tuple[Any, ...], float]:
    """By capacity, loop and load: the share of requests lost for memory in the article's table."""
    found: dict[tuple[Any, ...], float] = {}
    for case in cases:
        what = case["case"]
        if what.get("table") != article.NAME or what["policy"] != policy:
            continue
        if what["loop"] == "closed":
            found[what["capacity"], "closed", what["clients"]] = case["memory_share"]
        else:
            found.update({(what["capacity"], "open", at["rate"]): at["memory_share"] for at in case["curve"]})
    return found
