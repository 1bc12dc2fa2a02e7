"""The article's table: 8 x A100-80G that die when their memory is full, at two KV capacities.

Each policy in a closed loop of a fixed number of clients, in an open loop at rising rates, and the highest
rate that it sustains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean
from typing import Any, Final

from bench.policy.cells import Part
from bench.policy.figures import percentile
from bench.policy.limits import alone_ms, full_memory_rate
from bench.policy.record import Case
from bench.policy.scenarios import Scenarios
from bench.policy.sustained import Series, highest

NAME: Final = "article"
POLICIES: Final = (
    "round_robin",
    "least_conn",
    "kubernetes_random",
    "hybrid",
    "least_outstanding",
    "predictive",
    "clairvoyant",
    "clairvoyant least work",
)
TOLD: Final[dict[str, dict[str, float]]] = {
    "round_robin": {"qps": 12, "p99_s": 4.2, "utilisation": 0.61, "memory_share": 0.23},
    "least_conn": {"qps": 18, "p99_s": 2.8, "utilisation": 0.75, "memory_share": 0.07},
    "predictive": {"qps": 25, "p99_s": 1.9, "utilisation": 0.83, "memory_share": 0.003},
}
"""What the article tells."""
CELLS: Final = {16_000: "conv-tight-crash", 54_000: "conv-13b-crash"}
RATES: Final = {
    16_000: (5, 6, 7, 8, 9, 10, 11, 12),
    54_000: (12, 14, 15, 16, 17, 18),
}
TIGHT: Final = 16_000
REQUESTS: Final = 1200
"""Of one run with each seed."""
CLIENTS: Final = {16_000: (40, 48, 50, 56), 54_000: (96, 128)}
"""Concurrencies of the closed loop. With 50 clients round robin loses what the article tells of it."""


def parts(quick: bool, series: Series) -> list[Part]:
    """A part for each policy and capacity."""
    size = {"requests": series.count, "seeds": list(series.seeds)}
    return [
        Part(
            NAME,
            {"table": NAME, "capacity": capacity, "policy": policy, **size},
            _row(quick, series, capacity, policy),
        )
        for capacity in CELLS
        for policy in POLICIES
    ]


def _row(quick: bool, series: Series, capacity: int, policy: str) -> Callable[[], list[Case]]:
    def run() -> list[Case]:
        cell = CELLS[capacity]
        rates = RATES[capacity][::2] if quick else RATES[capacity]
        clients = CLIENTS[capacity][1:2] if quick else CLIENTS[capacity]
        what: dict[str, Any] = {
            "table": NAME,
            "capacity": capacity,
            "policy": policy,
            "requests": series.count,
            "seeds": list(series.seeds),
        }
        curve = series.curve(cell, policy, rates)
        return [
            {
                "case": {**what, "loop": "open"},
                "sustained_rate": highest(curve),
                "curve": [{"rate": rate, **figures} for rate, figures in curve.items()],
            },
            *(
                {"case": {**what, "loop": "closed", "clients": number}, **figures}
                for number, figures in series.closed(cell, policy, clients).items()
            ),
        ]

    return run


def limits(known: Scenarios, series: Series) -> list[dict[str, float]]:
    """Of each capacity what no policy can better, over the requests of the runs."""
    found = []
    for capacity, name in CELLS.items():
        cell = known.cells[name]
        specs = known.specs(cell)
        jobs = [job for seed in series.seeds for job in known.jobs(cell, seed, count=series.count)[0]]
        alone = percentile([alone_ms(job, specs[0]) / 1000 for job in jobs], 0.99)
        found.append(
            {
                "capacity": capacity,
                "mean_prompt": fmean(job.prompt for job in jobs),
                "mean_output": fmean(job.output for job in jobs),
                "full_memory_rate": full_memory_rate(jobs, specs),
                "alone_p99_s": alone,
            }
        )
    return found


def beside(cases: Sequence[Case]) -> list[tuple[str, dict[str, float], Case]]:
    """What the article tells of a policy, and the same here: in the closed loop of the tight fleet in which
    round robin loses about what it lost there, for memory or because no server was there any more."""
    closed = [
        case for case in cases if case["case"].get("loop") == "closed" and case["case"]["capacity"] == TIGHT
    ]
    plain = [case for case in closed if case["case"]["policy"] == "round_robin"]
    if not plain:
        return []
    lost = TOLD["round_robin"]["memory_share"]
    clients = min(plain, key=lambda case: abs(1 - float(case["success"]) - lost))["case"]["clients"]
    return [
        (case["case"]["policy"], TOLD[case["case"]["policy"]], case)
        for case in closed
        if case["case"]["clients"] == clients and case["case"]["policy"] in TOLD
    ]


def sustained(cases: Sequence[Case], capacity: int, policy: str) -> float | None:
    """The sustained rate of a policy at a capacity, where it was recorded."""
    return next(
        (
            float(case["sustained_rate"])
            for case in cases
            if case["case"].get("loop") == "open"
            and case["case"]["capacity"] == capacity
            and case["case"]["policy"] == policy
        ),
        None,
    )
