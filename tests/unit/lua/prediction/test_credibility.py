"""`lua/tokenweir/core/prediction/credibility.lua`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.unit.lua.readers import CORE

CREDIBILITY = CORE.require("tokenweir.core.prediction.credibility")
WITHIN = 0.8


def learned(between: float, *, keys: int = 200, outputs: int = 12, all_models: Any = None) -> Any:
    """What is believed of keys whose means differ by so much, after their outputs."""
    rng = np.random.default_rng(1)
    of = CREDIBILITY.new(all_models)
    for mean in rng.normal(0, between, keys):
        before: list[float] = []
        for value in rng.normal(mean, WITHIN, outputs):
            if before:
                CREDIBILITY.learn(of, all_models, float(value), float(np.mean(before)), len(before))
            before.append(value)
    return of


@pytest.mark.parametrize("between", [0.2, 0.4, 0.8])
def test_it_comes_to_the_variance_within_keys_over_that_between_them(between: float) -> None:
    true = (WITHIN / between) ** 2
    assert true / 1.6 < learned(between).strength < 1.6 * true


def test_keys_that_are_all_alike_are_hardly_believed() -> None:
    assert learned(0).strength > 20


def test_keys_that_always_give_the_same_are_believed_at_once() -> None:
    of = CREDIBILITY.new(None)
    for k in range(2000):
        CREDIBILITY.learn(of, None, 1.0 if k % 2 else -1.0, 1.0 if k % 2 else -1.0, 20)
    assert of.strength == 1


def test_a_model_begins_from_what_holds_of_all() -> None:
    apart, alike = learned(0.8), learned(0)
    assert CREDIBILITY.new(apart).strength < 5
    assert CREDIBILITY.new(alike).strength > 15


def test_its_own_outputs_outweigh_that() -> None:
    apart = learned(0.8)
    assert learned(0, all_models=apart).strength > 2 * CREDIBILITY.new(apart).strength


def test_nothing_leaves_its_bounds() -> None:
    of = CREDIBILITY.new(None)
    for k in range(500):
        CREDIBILITY.learn(of, None, 17.0 * (-1) ** k, 17.0, 1)
        assert 1 <= of.strength <= 200
