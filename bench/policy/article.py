"""The article's table: 8 x A100-80G that die when their memory is full, at two KV capacities.

Each policy in a closed loop of a fixed number of clients, in an open loop at rising rates, and the highest
rate that it sustains."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bench.policy.sustained import Series, highest

POLICIES: Final = (
    "round_robin",
    "least_conn",
    "kubernetes_random",
    "hybrid",
    "least_outstanding",
    "predictive",
    "clairvoyant",
)
ARTICLE: Final[dict[str, dict[str, float]]] = {
    "round_robin": {"qps": 12, "p99_s": 4.2, "utilisation": 0.61, "memory_share": 0.23},
    "least_conn": {"qps": 18, "p99_s": 2.8, "utilisation": 0.75, "memory_share": 0.07},
    "predictive": {"qps": 25, "p99_s": 1.9, "utilisation": 0.83, "memory_share": 0.003},
}
"""What the article tells."""
CELLS: Final = {16_000: "conv-tight-crash", 54_000: "conv-13b-crash"}
RATES: Final = {
    16_000: (4, 5, 6, 7, 8, 9, 10, 11),
    54_000: (8, 10, 12, 14, 15, 16, 17),
}
REQUESTS: Final = 1000
"""Of one run."""
CLIENTS: Final = {16_000: (24, 40, 56), 54_000: (64, 96, 128)}
"""Concurrencies of the closed loop."""


def run(quick: bool, series: Series) -> list[dict[str, Any]]:
    """One case for each policy, capacity and load."""
    cases: list[dict[str, Any]] = []
    for capacity, cell in CELLS.items():
        rates = RATES[capacity][::2] if quick else RATES[capacity]
        clients = CLIENTS[capacity][1:2] if quick else CLIENTS[capacity]
        for policy in POLICIES:
            what = {"table": "article", "capacity": capacity, "policy": policy}
            found = series.curve(cell, policy, rates)
            cases.append(
                {
                    "case": {**what, "loop": "open"},
                    "sustained_rate": highest(found),
                    "curve": [{"rate": rate, **figures} for rate, figures in found.items()],
                }
            )
            for number, figures in series.closed(cell, policy, clients).items():
                cases.append({"case": {**what, "loop": "closed", "clients": number}, **figures})
    return cases


def sustained(cases: Sequence[dict[str, Any]], capacity: int, policy: str) -> float:
    """The sustained rate of a policy at a capacity."""
    return next(
        float(case["sustained_rate"])
        for case in cases
        if case["case"].get("loop") == "open"
        and case["case"]["capacity"] == capacity
        and case["case"]["policy"] == policy
    )
