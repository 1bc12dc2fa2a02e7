"""`lua/tokenweir/core/body/text_tokens.lua`."""

from __future__ import annotations

import json
from typing import Any

import pytest


@pytest.fixture
def estimate(require: Any, pointer_to: Any) -> Any:
    module = require("tokenweir.core.body.text_tokens")

    def tokens(text: str, *, ensure_ascii: bool = False) -> float:
        body = json.dumps(text, ensure_ascii=ensure_ascii).encode("utf-8", "surrogatepass")
        size = len(text.encode("utf-8", "surrogatepass"))
        return float(module.per_byte(pointer_to(body), 1, len(body) - 1, 0.25)) * size

    return tokens


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 10, 101),
        ("def add(a, b):\n    return a + b\n\n" * 20, 241),
        ("3.14159265358979 " * 20, 140),
        ("今天天气很好，我们去公园散步吧。" * 20, 360),
    ],
)
def test_a_text_has_about_as_many_tokens_as_cl100k_makes_of_it(
    estimate: Any, text: str, tokens: float
) -> None:
    assert estimate(text) == pytest.approx(tokens, rel=0.2)


@pytest.mark.parametrize(
    "text", ['a "quoted" word\nand a line', "中文", "été", "🙂🙂", "tab\there \\ slash /", "\x01"]
)
def test_escapes_count_as_what_they_stand_for(estimate: Any, text: str) -> None:
    assert estimate(text, ensure_ascii=True) == pytest.approx(estimate(text), rel=1e-9)


def test_of_a_long_text_both_ends_are_read(estimate: Any) -> None:
    words, numbers = "word " * 100, "7, 3; " * 80
    assert estimate(words + numbers) > 1.2 * estimate(words + words)
    assert estimate(numbers + words) > 1.2 * estimate(words + words)


def test_where_there_is_no_text_the_default_stands(require: Any, pointer_to: Any) -> None:
    module = require("tokenweir.core.body.text_tokens")
    assert module.per_byte(pointer_to(b'""'), 1, 1, 0.25) == 0.25


def test_an_escape_that_is_cut_short_is_not_read_beyond_its_end(require: Any, pointer_to: Any) -> None:
    module = require("tokenweir.core.body.text_tokens")
    for text in (b'"\\u', b'"\\u12', b'"\\'):
        assert module.per_byte(pointer_to(text + b'"'), 1, len(text), 0.25) >= 0


def test_each_byte_is_weighed_by_the_one_before_it_wherever_it_stands(estimate: Any) -> None:
    # A word's first letter and the others, at each place of the eight bytes that are read at once.
    for word in range(1, 20):
        text = "x" * word + " "
        first, rest, gap = 941, 21, 0
        expected = 10 * (first + (word - 1) * rest + gap)
        assert estimate(text * 10) * 1000 == pytest.approx(expected)


def test_the_second_end_of_a_long_text_begins_anew(estimate: Any) -> None:
    # 160 letters at each end, each as if behind a space.
    assert estimate("x" * 1000) == pytest.approx(1000 * (941 + 159 * 21) / 160 / 1000)


def test_an_escape_that_an_end_cuts_counts_as_a_mark(estimate: Any) -> None:
    for shift in range(7):
        text = "x" * (155 + shift) + "中" + "x" * 400
        assert estimate(text, ensure_ascii=True) == pytest.approx(estimate("x" * 556), rel=0.5)
