"""`bench/policy/figures.py`, `bars.py`, `sustained.py`."""

from __future__ import annotations

from math import inf
from typing import Any

import pytest

from bench.policy import bars, figures, sustained
from bench.policy.figures import Objectives
from bench.policy.job import Job
from bench.policy.limits import alone_ms
from tests.unit.bench.policy.fleets import servers


def done(first: float, finished: float, prompt: int = 400, output: int = 11) -> Job:
    """A request that came at 0 and got its first and last token then (ms)."""
    job = Job(0, 0.0, prompt, output)
    job.sent, job.first_token, job.finished, job.server = 0.0, first, finished, 0
    return job


def test_a_good_request_meets_both_objectives() -> None:
    goals = Objectives()
    assert goals.met(done(1100, 1900))
    assert not goals.met(done(1101, 1900)), "1 s and 400 tokens at 4,000 a second"
    assert not goals.met(done(100, 901)), "80 ms for each of ten tokens"
    failed = done(100, 200)
    failed.failure = "memory"
    assert not goals.met(failed)


def test_a_failed_request_has_no_end() -> None:
    jobs = [done(10, 100) for _ in range(50)]
    jobs[0].failure = "memory"
    found = figures.of_run(jobs, servers(1), Objectives())
    assert found["p50_s"] == 0.1
    assert found["p99_s"] == inf
    assert found["p99_done_s"] == 0.1
    assert found["memory_share"] == 0.02


def row(good: list[float], p99: list[float], memory: float = 0.0) -> dict[str, Any]:
    """Figures of a policy over three seeds."""
    return {
        "good_share": sum(good) / len(good),
        "good_share_seeds": good,
        "p99_s": sum(p99) / len(p99),
        "p99_s_seeds": p99,
        "memory_share": memory,
        "worst_key": 1.0,
    }


def verdicts(found: dict[str, dict[str, Any]]) -> dict[str, bool]:
    """The bars of a cell."""
    return {bar.name.removeprefix("c: "): bar.ok for bar in bars.of_cell("c", found)}


def test_a_cell_is_held_against_the_best_rival_of_each_figure() -> None:
    own = row([0.99] * 3, [10.0] * 3)
    better_p99 = row([0.5] * 3, [9.0] * 3)
    better_good = row([0.995] * 3, [12.0] * 3)
    found = verdicts({"predictive": own, "dynamo": better_p99, "least_outstanding": better_good})
    assert not found["goodput / best rival's"]
    assert not found["p99 / best rival's"]


def test_what_lies_within_the_spread_of_the_seeds_is_no_defeat() -> None:
    own = row([0.95, 0.99, 0.97], [10.0, 10.0, 10.0])
    rival = row([0.99, 0.95, 0.98], [inf] * 3)
    found = verdicts({"predictive": own, "dynamo": rival})
    assert found["goodput / best rival's"]
    assert found["p99 / best rival's"]


def test_a_rival_that_fails_everything_is_beaten() -> None:
    found = verdicts({"predictive": row([1.0] * 3, [1.0] * 3), "dynamo": row([0.0] * 3, [inf] * 3)})
    assert all(found.values())


def at(good: float, success: float = 1.0) -> dict[str, float]:
    """Figures at a rate."""
    return {"good_share": good, "success": success}


def test_the_sustained_rate_is_where_the_first_condition_breaks() -> None:
    found = {4.0: at(1.0), 5.0: at(0.97), 6.0: at(0.93), 7.0: at(0.99)}
    assert sustained.highest(found) == pytest.approx(5.5)
    assert sustained.highest({4.0: at(1.0), 5.0: at(1.0, success=0.98)}) == pytest.approx(4.5)
    assert sustained.highest({4.0: at(0.5), 5.0: at(1.0)}) == 0
    assert sustained.highest({4.0: at(1.0), 5.0: at(1.0)}) == 5


def keyed(key: str, latency: float, prompt: int, output: int) -> Job:
    """A request of a key that took so long (ms)."""
    job = done(0.0, latency, prompt, output)
    job.key = key
    return job


def test_a_key_is_slowed_by_what_its_requests_take_over_what_they_would_take_alone() -> None:
    fleet = servers(1)
    alone = alone_ms(done(0, 0, 400, 100), fleet[0].spec)
    long = alone_ms(done(0, 0, 4000, 1000), fleet[0].spec)
    jobs = [keyed(key, alone, 400, 100) for key in "ab" for _ in range(40)]
    jobs += [keyed("c", 3 * alone, 400, 100) for _ in range(10)]
    jobs += [keyed("d", long, 4000, 1000) for _ in range(10)]
    assert figures._fairness(jobs, fleet) == pytest.approx(3), "a long request is not slow for being long"
