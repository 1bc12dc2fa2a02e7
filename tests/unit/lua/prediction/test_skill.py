"""`lua/tokenweir/core/prediction/skill.lua`."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture
def skill(require: Any) -> Any:
    return require("tokenweir.core.prediction.skill")


def judge(skill: Any, state: Any, count: int, median: float, running: float) -> bool:
    """Outputs of 100 tokens; whether `left` changed at one of them."""
    changes = [skill.judge(state, 100, median, 2 * median, running, 2 * running) for _ in range(count)]
    return any(changes)


def test_pinball_loss_weighs_the_two_sides_of_a_quantile(skill: Any) -> None:
    assert skill.pinball(100, 90, 0.9) == pytest.approx(9)
    assert skill.pinball(90, 100, 0.9) == pytest.approx(1)


def test_nothing_is_judged_before_there_are_enough_outputs(skill: Any) -> None:
    state = skill.new()
    assert skill.score(state) == 0
    assert not judge(skill, state, int(skill.AT_LEAST) - 1, 500, 100)
    assert judge(skill, state, 1, 500, 100)
    assert state.left


def test_a_predictor_that_is_better_stays(skill: Any) -> None:
    state = skill.new()
    assert not judge(skill, state, 500, 100, 150)
    assert not state.left
    assert skill.score(state) > 0


def test_a_predictor_that_is_worse_is_left_and_comes_back_when_it_has_recovered(skill: Any) -> None:
    state = skill.new()
    assert judge(skill, state, 100, 300, 110)
    assert state.left
    assert skill.score(state) < 0
    assert judge(skill, state, 2000, 100, 110)
    assert not state.left


def test_one_that_is_hardly_worse_is_not_left(skill: Any) -> None:
    state = skill.new()
    assert not judge(skill, state, 1000, 151, 150)
