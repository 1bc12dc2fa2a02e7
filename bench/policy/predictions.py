"""What the predictor would have said of a trace's requests.

The traces hold lengths and no text, so nothing can be predicted from them. What is known is how the trained
predictor does on held-out prompts: pairs of prediction and truth (`pairs.csv.gz`). A request of the trace
takes the prediction of a pair whose truth has its rank: so the ranks of prediction and truth are jointly
distributed as measured. The rank of a prediction becomes tokens by what outputs of the trace with such
predictions come to, times how far off the predictor was there. Thus the truth *given the prediction* spreads
as it did when measured. Truth plus noise would not do: it puts the spread on the wrong side, and flatters
every policy that believes predictions.
"""

from __future__ import annotations

import csv
import gzip
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, pstdev
from typing import Final

from bench.policy.job import Job, Prediction

PAIRS: Final = Path(__file__).with_name("pairs.csv.gz")
BINS: Final = 25
NEIGHBOURS: Final = 0.01
"""Share of the pairs among which a request finds its own: those of nearly its rank."""


@dataclass(frozen=True, slots=True)
class Pair:
    """One output of the held-out set and what had been predicted, in tokens."""

    output: float
    mean: float
    median: float
    q90: float
    sd: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """How predictions of one bin compared with what came: predicted over true."""

    mean: float
    median: float
    q90: float
    sd: float


@cache
def pairs(path: Path = PAIRS) -> tuple[Pair, ...]:
    """The measured pairs, by rising output."""
    with gzip.open(path, "rt") as lines:
        rows = [Pair(**{name: float(value) for name, value in row.items()}) for row in csv.DictReader(lines)]
    return tuple(sorted(rows, key=lambda pair: pair.output))


def quantile(ordered: Sequence[float], level: float) -> float:
    """The quantile of sorted values, between neighbours by straight line."""
    at = level * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def _statistics(outputs: Sequence[float]) -> tuple[float, float, float, float]:
    """(mean, median, 90 % quantile, standard deviation)"""
    ordered = sorted(outputs)
    return fmean(ordered), quantile(ordered, 0.5), quantile(ordered, 0.9), pstdev(ordered)


def _ranks(values: Sequence[float], rng: random.Random) -> list[float]:
    """Rank of each value, 0 to 1; among equals at random."""
    order = sorted(range(len(values)), key=lambda i: (values[i], rng.random()))
    ranks = [0.0] * len(values)
    for place, i in enumerate(order):
        ranks[i] = (place + 0.5) / len(values)
    return ranks


@cache
def _measured(path: Path) -> tuple[tuple[float, ...], tuple[Calibration, ...]]:
    """Rank of the prediction of each pair, and the calibration of each bin of those ranks."""
    known = pairs(path)
    ranks = _ranks([pair.mean for pair in known], random.Random(0))
    bins: list[list[Pair]] = [[] for _ in range(BINS)]
    for rank, pair in zip(ranks, known, strict=True):
        bins[int(rank * BINS)].append(pair)
    found = []
    for members in bins:
        mean, median, q90, sd = _statistics([pair.output for pair in members])
        found.append(
            Calibration(
                fmean(pair.mean for pair in members) / max(mean, 1),
                fmean(pair.median for pair in members) / max(median, 1),
                fmean(pair.q90 for pair in members) / max(q90, 1),
                fmean(pair.sd for pair in members) / max(sd, 1),
            )
        )
    return tuple(ranks), tuple(found)


def trained(jobs: Sequence[Job], seed: int, path: Path = PAIRS) -> list[Prediction]:
    """What the trained predictor would have said of each request."""
    rng = random.Random(f"predictions/{seed}")
    ranks, calibration = _measured(path)
    outputs = [pair.output for pair in pairs(path)]
    near = max(1, int(NEIGHBOURS * len(outputs)))
    said = []
    for own in _ranks([job.output for job in jobs], rng):
        at = int(own * len(outputs)) + rng.randint(-near, near)
        said.append(ranks[min(max(at, 0), len(ranks) - 1)])
    order = sorted(range(len(jobs)), key=lambda i: (said[i], rng.random()))
    edges = [round(k * len(order) / BINS) for k in range(BINS + 1)]
    found = [Prediction()] * len(jobs)
    for k in range(BINS):
        members = order[edges[k] : edges[k + 1]]
        if not members:
            continue
        mean, median, q90, sd = _statistics([jobs[i].output for i in members])
        was = calibration[k]
        # Within a bin predictions differ too; a straight line to the neighbours' means would add nothing that
        # a policy can tell from the bin's own.
        prediction = Prediction(
            max(1.0, mean * was.mean), median * was.median, max(1.0, q90 * was.q90), max(1.0, sd * was.sd)
        )
        for i in members:
            found[i] = prediction
    return found


def permuted(jobs: Sequence[Job], seed: int, path: Path = PAIRS) -> list[Prediction]:
    """The same predictions dealt out at random: a predictor that knows nothing."""
    found = trained(jobs, seed, path)
    random.Random(f"permuted/{seed}").shuffle(found)
    return found


def clairvoyant(jobs: Sequence[Job], seed: int) -> list[Prediction]:
    """The true lengths."""
    return [Prediction(job.output, job.output, job.output, 0.0) for job in jobs]


def running(jobs: Sequence[Job], seed: int) -> list[Prediction]:
    """Nothing: the running figures serve."""
    return [Prediction()] * len(jobs)


__all__ = ["clairvoyant", "pairs", "permuted", "quantile", "running", "trained"]
