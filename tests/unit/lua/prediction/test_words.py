"""`lua/tokenweir/core/prediction/words.lua` and `word_hash.lua`."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.pointers import points_in
from tests.unit.lua.readers import CORE, of_text, user

WORDS = CORE.require("tokenweir.core.prediction.words")
POINT = points_in(CORE.script)
TEXT = WORDS.text


def scan(text: str, *, ensure_ascii: bool = False, cut: int | None = None, start: int = 0) -> set[int]:
    """The distinct indices of a text as it stands in JSON; `cut`, `start`: only a part of it."""
    inside = json.dumps(text, ensure_ascii=ensure_ascii).encode("utf-8", "surrogatepass")
    last = len(inside) - 1
    WORDS.begin()
    stop = last if cut is None else 1 + cut
    WORDS.scan(POINT(inside), 1 + start, stop, last, start == 0)
    return {TEXT.index[k] for k in range(TEXT.count)}


def test_words_are_told_apart_and_cases_are_not() -> None:
    assert scan("Hello") == scan("hello")
    assert len(scan("hello")) == 1
    assert scan("hello") != scan("hallo")


def test_two_words_in_a_row_are_a_feature_of_their_own() -> None:
    assert len(scan("red apple")) == 3
    assert scan("red apple") & scan("apple red") == scan("red") | scan("apple")


def test_what_is_said_twice_counts_once() -> None:
    assert len(scan("no no no no")) == 2
    assert TEXT.words == 4


LETTERS = ["word", "Été", "żółć", "привет", "中", "文字", "ひらがな", "한국어", "42", "x1", "é", "u0041"]
OTHERS = ["🙂", "—", "\n", '"', "\\", "\\n", "\\u", "/", "\t", "?", "!", ",", " ", " ", " ", "\x01"]
PIECES = st.lists(st.sampled_from(LETTERS + OTHERS), max_size=40)


@given(PIECES)
def test_escapes_count_as_what_they_stand_for(pieces: list[str]) -> None:
    text = "".join(pieces)
    plain = scan(text)
    counted = figures()
    assert scan(text, ensure_ascii=True) == plain
    assert figures() == counted


@pytest.mark.parametrize("escaped", [r"w\u006frd", r"\u0077ord", r"wor\u0064"])
def test_an_escaped_letter_is_part_of_its_word(escaped: str) -> None:
    WORDS.begin()
    inside = f'"{escaped}"'.encode()
    WORDS.scan(POINT(inside), 1, len(inside) - 1, len(inside) - 1, True)
    assert {TEXT.index[k] for k in range(TEXT.count)} == scan("word")


def figures() -> dict[str, Any]:
    """What is counted beside the words."""
    names = (
        "words",
        "bytes",
        "lines",
        "digits",
        "marks",
        "brackets",
        "commas",
        "stops",
        "numbers",
        "questions",
    )
    more = ("accents", "ideographs", "others", "stated_words", "stated_sentences", "stated_items")
    return {name: getattr(TEXT, name) for name in names + more} | {"cue": [TEXT.cue[k] for k in range(32)]}


@given(PIECES)
def test_words_are_runs_of_letters_and_digits_and_single_ideographs(pieces: list[str]) -> None:
    text = "".join(pieces)
    scan(text)
    ideographs = re.findall(r"[぀-鿿]", text)
    runs = re.findall(r"[^\W_぀-鿿]+", text)
    assert TEXT.words == len(ideographs) + len(runs)
    assert TEXT.ideographs == len(ideographs)


def test_what_a_text_is_made_of_is_counted() -> None:
    scan('x = {"a": [1, 23]};\nWhy? No.\n')
    assert (TEXT.lines, TEXT.digits, TEXT.numbers, TEXT.questions) == (2, 3, 2, 1)
    assert (TEXT.commas, TEXT.stops) == (1, 1)
    assert TEXT.brackets == 6


@pytest.mark.parametrize(
    ("text", "words", "sentences", "items"),
    [
        ("Answer in 50 words.", 50, 0, 0),
        ("a 500-word essay", 500, 0, 0),
        ("Explain it in two sentences", 0, 2, 0),
        ("one paragraph, please", 0, 1, 0),
        ("Give me ten different ways to go", 0, 0, 10),
        ("List 12 things", 0, 0, 12),
        ("top 5", 0, 0, 5),
        ("用100字概括", 100, 0, 0),
        ("请用三句话回答", 0, 3, 0),
        ("列出10个例子", 0, 0, 10),
        ("It was 1984 when 17 people met", 0, 0, 0),
        ("gpt4 words", 0, 0, 0),
        ("99999999999999999999 words", 100000, 0, 0),
    ],
)
def test_lengths_that_are_stated_are_found(text: str, words: int, sentences: int, items: int) -> None:
    for ensure_ascii in (False, True):
        scan(text, ensure_ascii=ensure_ascii)
        assert (TEXT.stated_words, TEXT.stated_sentences, TEXT.stated_items) == (words, sentences, items)


def test_a_word_that_a_cut_goes_through_is_left_out() -> None:
    assert scan("alpha beta gamma", cut=9) == scan("alpha")
    assert scan("alpha beta gamma", cut=11) == scan("alpha beta")
    assert scan("alpha beta gamma", start=3) == scan("beta gamma")


def test_a_cut_through_an_escape_or_a_character_yields_no_other_word() -> None:
    whole = scan("один два три четыре", ensure_ascii=True)
    inside = len(json.dumps("один два три четыре")) - 2
    # Up to the last word, behind which there is no space to begin at.
    for start in range(1, inside - 6 * len("четыре")):
        assert scan("один два три четыре", ensure_ascii=True, start=start) <= whole
    for cut in range(1, inside):
        assert scan("один два три четыре", ensure_ascii=True, cut=cut) <= whole


def test_of_a_long_message_both_ends_are_read() -> None:
    filler = "filler " * 2000
    ends = of_text("alpha " + filler + "omega")
    assert scan("alpha") | scan("omega") <= ends["words"]  # type: ignore[operator]
    middle = of_text(filler + "needle " + filler)
    assert not scan("needle") <= middle["words"]  # type: ignore[operator]


def test_of_a_message_in_parts_the_first_beginning_and_the_last_end_are_read() -> None:
    parts = [
        {"type": "text", "text": "alpha beta"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
        {"type": "text", "text": "omega"},
    ]
    found = CORE.read(["chat"], [json.dumps(user(parts)).encode()])
    assert set(found.words.index.tolist()) == scan("alpha beta") | scan("omega")


@given(st.integers(1, 4096), st.sampled_from(["a ", "中", "1,", "\\", '"', "é", "?", "\n"]))
def test_nothing_overflows(size: int, piece: str) -> None:
    text = (piece * size)[:size]
    scan(text[: 4000 // max(1, len(json.dumps(piece)) - 2)])
    assert TEXT.words <= WORDS.MOST_WORDS
    assert TEXT.count <= 2 * WORDS.MOST_WORDS
