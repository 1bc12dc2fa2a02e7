"""`lua/tokenweir/core/prediction/prompt_tokens.lua`."""

from __future__ import annotations

import random
from typing import Any

import pytest


@pytest.fixture
def tokens(require: Any) -> Any:
    return require("tokenweir.core.prediction.prompt_tokens")


def test_before_anything_is_told_the_estimate_stands(tokens: Any) -> None:
    raw = tokens.raw(100, 2)
    assert raw == 108
    assert tokens.estimate(tokens.new(), raw, 0) == 108


def test_pictures_count_beside_the_text(tokens: Any) -> None:
    assert tokens.estimate(tokens.new(), 100, 2) == 100 + 2 * tokens.PER_MEDIUM


@pytest.mark.parametrize("factor", [0.6, 1.4])
def test_after_a_hundred_requests_another_tokenizer_is_known(tokens: Any, factor: float) -> None:
    random.seed(1)
    of = tokens.new()
    for _ in range(100):
        raw = random.uniform(20, 2000)
        tokens.learn(of, raw, factor * raw * random.uniform(0.9, 1.1), 0)
    assert tokens.estimate(of, 1000, 0) == pytest.approx(1000 * factor, rel=0.05)


def test_what_cannot_be_told_of_text_is_not_learned(tokens: Any) -> None:
    of = tokens.new()
    tokens.learn(of, 100, 5000, 1)
    tokens.learn(of, 0, 100, 0)
    tokens.learn(of, 100, 0, 0)
    assert tokens.estimate(of, 100, 0) == 100


def test_an_engine_that_counts_nonsense_moves_it_only_so_far(tokens: Any) -> None:
    of = tokens.new()
    for _ in range(1000):
        tokens.learn(of, 10, 10_000_000, 0)
        tokens.learn(of, 1000, 1, 0)
    assert 1 <= tokens.estimate(of, 100, 0) <= 11_000


def test_what_a_chat_template_adds_is_known_beside_the_factor(tokens: Any) -> None:
    random.seed(2)
    of = tokens.new()
    for _ in range(100):
        raw = random.uniform(10, 500)
        tokens.learn(of, raw, 0.7 * raw + 40, 0)
    for raw in (15, 100, 400):
        assert tokens.estimate(of, raw, 0) == pytest.approx(0.7 * raw + 40, rel=0.05)


def test_prompts_of_one_size_are_enough_to_know_that_size(tokens: Any) -> None:
    of = tokens.new()
    for _ in range(200):
        tokens.learn(of, 100, 150, 0)
    assert tokens.estimate(of, 100, 0) == pytest.approx(150, rel=0.05)
