"""`model/training.py`."""

from __future__ import annotations

import numpy as np
import pytest

from model import training
from tests.unit.model.conftest import SMALL, Example


def test_too_few_completions_are_refused_with_how_many_are_needed(example: Example) -> None:
    with pytest.raises(training.TooFewError, match=r"50 completions of .* at least 200"):
        training.fit(example.data.take(np.arange(50)), example.core)


def test_outputs_that_ended_keep_their_residuals() -> None:
    residual = np.array([0.1, -0.5, 2.0])
    assert training.impute(residual, np.array([True, True, True]), 1) is residual


def test_an_output_cut_short_counts_as_one_of_the_longer() -> None:
    residual = np.array([0.0, 1.0, 2.0, 3.0, 0.5])
    ended = np.array([True, True, True, True, False])
    drawn = {float(training.impute(residual, ended, seed)[4]) for seed in range(200)}
    assert drawn == {1.0, 2.0, 3.0}


def test_one_that_is_longer_than_all_others_stays_as_it_is() -> None:
    filled = training.impute(np.array([0.0, 1.0, 9.0]), np.array([True, True, False]), 1)
    assert filled[2] == 9


def test_what_was_cut_does_not_bend_the_distribution() -> None:
    rng = np.random.default_rng(3)
    true = rng.normal(0, 1, 20_000)
    cut_at = rng.normal(0.5, 1, 20_000)
    seen, ended = np.minimum(true, cut_at), true <= cut_at
    filled = training.impute(seen, ended, 1)
    assert np.quantile(seen, 0.9) < np.quantile(true, 0.9) - 0.2
    for level in (0.1, 0.5, 0.9):
        assert np.quantile(filled, level) == pytest.approx(np.quantile(true, level), abs=0.06)


def test_the_shape_is_told_in_widths() -> None:
    rng = np.random.default_rng(4)
    residual = rng.normal(0, 1, 20_000)
    n = len(residual)
    low, high = training.shape(residual, np.zeros(n), np.full(n, -1.2816), np.full(n, 1.2816), 8)
    assert (np.diff(low) > 0).all()
    assert (np.diff(high) > 0).all()
    # The middle of the fourth eighth above the median is the 71.9 % quantile.
    assert high[3] == pytest.approx(0.579 / 1.2816, abs=0.03)
    assert low == pytest.approx(high, abs=0.06)


def test_the_priors_of_models_with_few_outputs_are_drawn_to_that_of_all(example: Example) -> None:
    data = example.data.take(np.arange(1000))
    found = training.priors(data, example.core)
    value = np.log1p(data.output)
    for name, mean in found.models.items():
        own = value[data.model == name].mean()
        assert min(own, found.mean) - 1e-9 <= mean <= max(own, found.mean) + 1e-9


def test_rare_words_weigh_nothing(example: Example) -> None:
    linear = example.fitted.linear
    assert ((linear.weights != 0) <= (linear.squares != 0)).all()
    assert 0 < (linear.squares != 0).sum() < example.core.space


def test_the_gains_are_shares(example: Example) -> None:
    assert sum(example.fitted.gains.values()) == pytest.approx(1)
    assert example.fitted.gains["word_score"] > 0.1


def test_it_tells_every_step_that_it_says_it_has(example: Example) -> None:
    told: list[str] = []
    training.fit(example.data.take(np.arange(600)), example.core, SMALL, told.append)
    assert len(told) == training.STEPS
