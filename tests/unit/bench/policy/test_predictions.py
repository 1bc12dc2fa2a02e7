"""`bench/policy/predictions.py`: the truth, given what is said, spreads as it did when measured."""

from __future__ import annotations

import random
from statistics import correlation, fmean

from bench.policy import predictions
from bench.policy.job import Job


def trace(count: int = 4000) -> list[Job]:
    """Requests with lognormal outputs."""
    rng = random.Random(1)
    return [Job(k, 0.0, 100, max(1, round(rng.lognormvariate(5, 0.9)))) for k in range(count)]


def ranks(values: list[float]) -> list[float]:
    """Ranks of the values."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    for place, i in enumerate(order):
        found[i] = place
    return found


def test_predictions_rank_as_well_as_those_that_were_measured() -> None:
    known = predictions.pairs()
    measured = correlation(ranks([pair.output for pair in known]), ranks([pair.mean for pair in known]))
    asked = trace()
    said = predictions.trained(asked, 1)
    drawn = correlation(ranks([float(job.output) for job in asked]), ranks([p.mean for p in said]))
    assert abs(drawn - measured) < 0.06
    assert measured < 0.95, "a predictor that is nearly perfect would prove nothing"


def test_predicted_means_are_as_true_on_the_whole_as_those_that_were_measured() -> None:
    known = predictions.pairs()
    measured = fmean(pair.mean for pair in known) / fmean(pair.output for pair in known)
    asked = trace()
    said = predictions.trained(asked, 1)
    assert abs(fmean(p.mean for p in said) / fmean(job.output for job in asked) - measured) < 0.1


def test_the_truth_lies_above_the_predicted_quantile_about_as_often_as_was_measured() -> None:
    known = predictions.pairs()
    measured = fmean(pair.output > pair.q90 for pair in known)
    asked = trace()
    said = predictions.trained(asked, 1)
    drawn = fmean(job.output > p.q90 for job, p in zip(asked, said, strict=True))
    assert abs(drawn - measured) < 0.05


def test_permuted_predictions_know_nothing() -> None:
    asked = trace()
    said = predictions.permuted(asked, 1)
    assert abs(correlation([float(job.output) for job in asked], [p.mean for p in said])) < 0.05


def test_another_seed_draws_others() -> None:
    asked = trace(500)
    one, two = predictions.trained(asked, 1), predictions.trained(asked, 2)
    assert any(a.mean != b.mean for a, b in zip(one, two, strict=True))
