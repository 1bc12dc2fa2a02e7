"""Policies before engines that fail hard when their memory is full (`tight_memory.lua`)."""

from __future__ import annotations

import random
from bisect import bisect_right
from pathlib import Path

import pytest

from tests.unit.lua.fleets import build, equal, snapshot
from tokenweir.luavm import new_runtime

SIMULATION = (Path(__file__).parent / "tight_memory.lua").read_bytes()
CAPACITY = 16_000
COST = {"prefill": 0.1, "base": 30.0, "per_sequence": 0.1, "per_kv_token": 1e-4}

# Lengths of the Azure conversation trace of 2023 (Azure/AzurePublicDataset, CC-BY 4.0), as quantiles.
PERCENT = [0, 5, 10, 20, 30, 40, 50, 60, 70, 80, 85, 90, 95, 98, 99, 99.5, 99.9, 100]
PROMPTS = [
    2,
    181,
    207,
    387,
    403,
    703,
    1020,
    1071,
    1130,
    1315,
    1877,
    2735,
    4083,
    4098,
    4142,
    4831,
    6212,
    14050,
]
OUTPUTS = [7, 41, 54, 77, 91, 103, 129, 177, 384, 400, 411, 424, 451, 540, 601, 644, 954, 1000]
MEAN, SPREAD = 211.0, 163.0


def length(quantiles: list[int], rng: random.Random) -> int:
    """A length drawn from a table of quantiles."""
    percent = rng.random() * 100
    k = min(len(PERCENT) - 2, bisect_right(PERCENT, percent) - 1)
    share = (percent - PERCENT[k]) / (PERCENT[k + 1] - PERCENT[k])
    return round(quantiles[k] + share * (quantiles[k + 1] - quantiles[k]))


def simulate(policy: str, rate: float, seed: int, *, bounded: bool = True) -> tuple[float, float]:
    """1,500 requests over 8 servers, each predicted to be average: (share aborted, p99 in s of the others).

    `bounded`: whether the policy knows what the servers hold.
    """
    lua = new_runtime()
    lua.execute(b"math.randomseed(%d)" % seed)
    fleet, err = build(lua, snapshot(*equal(8, cost=COST, capacity=CAPACITY if bounded else None)))
    assert fleet, err
    rng, at = random.Random(seed), 0.0
    arrivals, prompts, outputs = [], [], []
    for _ in range(1500):
        at += rng.expovariate(rate / 1000)
        arrivals.append(at)
        prompts.append(length(PROMPTS, rng))
        outputs.append(length(OUTPUTS, rng))
    predicted = lua.table_from({b"mean": MEAN, b"sd": SPREAD, b"class": b"high"})
    tables = [lua.table_from(values) for values in (arrivals, prompts, outputs)]
    aborted, done, p99 = lua.execute(SIMULATION)(policy.encode(), fleet, *tables, predicted, CAPACITY)
    assert aborted + done == 1500, "every request ends one way or the other"
    return aborted / 1500, p99 / 1000


def aborted(policy: str, rate: float, *, bounded: bool = True) -> float:
    """The share aborted over three seeds."""
    return sum(simulate(policy, rate, seed, bounded=bounded)[0] for seed in (1, 2, 3)) / 3


@pytest.mark.parametrize("rate", [6, 8, 9])
def test_predictive_aborts_fewer_than_least_outstanding_and_round_robin(rate: float) -> None:
    round_robin = aborted("round_robin", rate)
    least_outstanding = aborted("least_inflight", rate, bounded=False)
    predictive = aborted("predictive", rate)
    assert predictive <= 0.004
    assert predictive < least_outstanding < round_robin
    assert round_robin > 0.02


def test_where_memory_is_plentiful_it_costs_no_time() -> None:
    ours, _ = zip(*[simulate("predictive", 3, seed)[::-1] for seed in (1, 2, 3)], strict=True)
    rival, _ = zip(
        *[simulate("least_inflight", 3, seed, bounded=False)[::-1] for seed in (1, 2, 3)], strict=True
    )
    assert sum(ours) <= 1.02 * sum(rival)


def test_what_is_in_flight_when_the_snapshot_is_stale_is_bounded_too() -> None:
    assert aborted("least_inflight", 9) <= 0.004
