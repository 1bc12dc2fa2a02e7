"""The figures and bars of the buffer bench."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Any

from bench.buffer.overload import Run, Sent
from bench.overhead.figures import quantile
from bench.report import Bar

LEAST_S = 1.0
"""Errors of estimates are relative to the wait, or to this where the wait was shorter."""
STARVED_S = 10.0
"""A class none of whose waiting requests is served for so long is starved."""
CLASSES = ("high", "normal", "low")


def _quantile(values: Iterable[float], share: float) -> float | None:
    listed = sorted(values)
    return round(quantile(listed, share), 3) if listed else None


def longest_gap(sent: Sequence[Sent], until: float) -> float:
    """The longest time during which some of these waited all the while and none was served, s."""
    served = sorted(one.placed for one in sent if one.served)
    longest = 0.0
    for one in sent:
        # From its coming, or the last of its class to be served before its own turn, to the next that is.
        last = one.answer.sent
        for at in served:
            if at <= last:
                continue
            if at > min(one.placed, until):
                break
            longest = max(longest, at - last)
            last = at
        longest = max(longest, min(one.placed, until) - last)
    return longest


def _estimates(run: Run, priorities: Sequence[str]) -> dict[str, float | None]:
    """Of those who were told a wait and left the queue while the load was on."""
    told = [
        (one.answer.hints[0].wait, one)
        for one in run.sent
        if one.answer.hints and one.request.priority in priorities and one.placed < run.ended
    ]
    pairs = [(estimate, one) for estimate, one in told if estimate is not None]
    served = [(estimate, one.wait) for estimate, one in pairs if one.served]
    if not served:
        return {"eta_median_error": None, "eta_within_2x": None, "eta_told": 0}
    # One that was refused has not been served within anything.
    within = sum(one.served and one.wait <= max(2 * estimate, LEAST_S) for estimate, one in pairs)
    return {
        "eta_median_error": round(median(abs(e - wait) / max(wait, LEAST_S) for e, wait in served), 3),
        "eta_within_2x": round(within / len(pairs), 3),
        "eta_told": len(pairs),
    }


def of_run(run: Run) -> dict[str, Any]:
    """The figures of one run."""
    served = [one for one in run.sent if one.served]
    during = run.ended - run.began
    figures: dict[str, Any] = {
        "requests": len(run.sent),
        "served": len(served),
        "refused": sum(one.answer.status in {429, 503} for one in run.sent),
        # Everybody asks for hints: who was told nothing was refused when it came.
        "refused_at_once": sum(one.answer.status in {429, 503} and not one.answer.hints for one in run.sent),
        "failed": sum(one.answer.status not in {200, 429, 503} for one in run.sent),
        "overload": round(len(run.sent) / max(1, sum(one.answer.ended < run.ended for one in served)), 2),
        "seconds": round(during, 1),
        "latency_mean": round(fmean(one.answer.latency for one in served), 3),
        "flood_wait_p50": _quantile((one.wait for one in served if one.flooding), 0.5),
        "others_latency_p99": _quantile((one.answer.latency for one in served if not one.flooding), 0.99),
        "others_refused": sum(not one.served and not one.flooding for one in run.sent),
        **_estimates(run, ("high", "normal")),
        "hints_most": max(len(one.answer.hints) for one in run.sent),
    }
    starved = 0
    for name in CLASSES:
        of_class = [one for one in run.sent if one.request.priority == name and not one.flooding]
        waits = [one.wait for one in of_class if one.served]
        figures[f"wait_p50_{name}"], figures[f"wait_p99_{name}"] = (
            _quantile(waits, 0.5),
            _quantile(waits, 0.99),
        )
        gap = longest_gap(of_class, run.ended)
        figures[f"longest_gap_{name}"] = round(gap, 2)
        starved += gap > STARVED_S
    figures["starved"] = starved
    return figures


def mean(cases: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The mean of a figure over the runs that have it."""
    values = [case[name] for case in cases if case.get(name) is not None]
    return round(fmean(values), 3) if values else None


def bars(overall: Mapping[str, Any]) -> list[Bar]:
    """What must hold."""
    return [
        Bar("inversions", overall["inversions"], "==", 0),
        Bar("starved", overall["starved"], "==", 0),
        Bar("eta_median_error", overall["eta_median_error"], "<=", 0.30),
        Bar("eta_within_2x", overall["eta_within_2x"], ">=", 0.90),
        Bar("wake_ms_p99", overall["wake_ms_p99"], "<=", 10),
        Bar("bytes_per_waiter", overall["bytes_per_waiter"], "<=", 15_000),
        Bar("flood_effect", overall["flood_effect"], "<=", 1.3),
        Bar("lost_on_reload", overall["lost_on_reload"], "==", 0),
        Bar("latency_against_fifo", overall["latency_against_fifo"], "<=", 0.85),
    ]
