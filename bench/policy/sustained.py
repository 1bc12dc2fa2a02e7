"""The highest rate that a policy sustains in a cell: at least 99 % of the requests succeed, and at least 95 %
meet their objectives."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any, Final

from bench.policy.figures import combine
from bench.policy.runs import Run, execute

SUCCESS: Final = 0.99
GOOD: Final = 0.95


def holds(found: dict[str, Any]) -> bool:
    """Whether a rate is sustained."""
    return bool(found["success"] >= SUCCESS and found["good_share"] >= GOOD)


@dataclass(frozen=True)
class Series:
    """How a rate is tried: with which seeds and how many requests, over which processes."""

    seeds: Sequence[int]
    count: int | None
    pool: ProcessPoolExecutor

    def combined(self, runs: Sequence[Run]) -> list[dict[str, Any]]:
        """The figures of runs that stand by seed, each group's mean."""
        found = list(self.pool.map(execute, runs))
        size = len(self.seeds)
        return [combine(found[k : k + size]) for k in range(0, len(found), size)]

    def curve(self, cell: str, policy: str, rates: Sequence[float]) -> dict[float, dict[str, Any]]:
        """The figures at each rate."""
        runs = [Run(cell, policy, seed, rate, self.count) for rate in rates for seed in self.seeds]
        return dict(zip(rates, self.combined(runs), strict=True))

    def closed(self, cell: str, policy: str, clients: Sequence[int]) -> dict[int, dict[str, Any]]:
        """The figures of each number of clients in a closed loop."""
        runs = [
            Run(cell, policy, seed, count=self.count, clients=number)
            for number in clients
            for seed in self.seeds
        ]
        return dict(zip(clients, self.combined(runs), strict=True))


def highest(found: dict[float, dict[str, Any]]) -> float:
    """The highest rate up to which every one is sustained (0: not even the lowest), by straight line to the
    share at which the next one fails."""
    best = 0.0
    rates = sorted(found)
    for k, rate in enumerate(rates):
        if holds(found[rate]):
            best = rate
            continue
        if k and best:
            return best + (rate - best) * _crossing(found[best], found[rate])
        return 0.0
    return best


def _crossing(good: dict[str, Any], bad: dict[str, Any]) -> float:
    """Where between two rates the first condition breaks, 0 to 1."""
    shares: list[float] = []
    for name, limit in (("success", SUCCESS), ("good_share", GOOD)):
        if bad[name] < limit:
            shares.append((good[name] - limit) / (good[name] - bad[name]))
    return min(shares)
