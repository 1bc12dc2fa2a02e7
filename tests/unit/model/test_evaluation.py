"""`model/evaluation.py`."""

from __future__ import annotations

import numpy as np
import pytest

from model import evaluation
from model.evaluation import Said
from tests.unit.model.conftest import Example

ACTUAL = np.array([10.0, 60.0, 100.0, 200.0])


def test_pinball_loss_weighs_misses_above_nine_times_at_the_90_percent_quantile() -> None:
    loss = evaluation.pinball(np.array([100.0, 100.0]), np.array([90.0, 110.0]), 0.9)
    assert loss.tolist() == pytest.approx([9, 1])


def test_precision_and_recall_are_those_of_high() -> None:
    precision, recall = evaluation.classes(np.array([60.0, 40.0, 100.0, 70.0]), ACTUAL)
    assert (precision, recall) == (pytest.approx(2 / 3), pytest.approx(2 / 3))


def test_a_perfect_prediction_scores_so() -> None:
    found = evaluation.scores(Said(ACTUAL, ACTUAL, ACTUAL), ACTUAL, np.zeros(4, bool))
    assert (found.mae, found.tau, found.coverage_q90, found.pinball, found.bias) == (0, 1, 1, 0, 1)


def test_coverage_is_judged_on_outputs_that_ended_by_themselves() -> None:
    q90 = np.array([20.0, 20.0, 200.0, 20.0])
    found = evaluation.scores(Said(ACTUAL, ACTUAL, q90), ACTUAL, np.array([False, False, False, True]))
    assert found.coverage_q90 == pytest.approx(2 / 3)


def test_a_trained_model_is_better_than_running_figures(example: Example) -> None:
    data = evaluation.judged(example.data.take(np.arange(0, len(example.data), 7)))
    model = evaluation.evaluate(
        example.core,
        evaluation.of_model(example.core, example.model, data, example.fitted.mean_factor),
        data,
    )
    running = evaluation.evaluate(example.core, evaluation.of_running_figures(example.core, data), data)
    assert model.pinball < 0.95 * running.pinball
    assert model.tau > running.tau
    assert 0.85 < model.coverage_q90 < 0.95
