"""`lua/tokenweir/core/answer/ending.lua`: what is recognised by its ending reads as what is read in full."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.lua.pointers import points_in
from tokenweir.luavm import new_runtime

FIGURES = ("prompt_tokens", "completion_tokens", "cached_tokens", "finish_reason", "error")


class Reader:
    """Reads whole answers, each in one piece, and tells whether by a known ending."""

    def __init__(self) -> None:
        lua = new_runtime()
        self._usage = lua.execute(b'local m = require "tokenweir.core.answer.usage" return m')
        self._answer = lua.execute(b'local m = require "tokenweir.core.answer.answer" return m')
        self._ending = lua.execute(b'local m = require "tokenweir.core.answer.ending" return m')
        self._point = points_in(lua.execute)
        self._state = self._usage.new()
        self.every = int(self._ending.LEARN_EVERY)

    def _told(self) -> dict[str, Any]:
        told = {name: self._state[name.encode()] for name in FIGURES}
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in told.items()}

    def read(self, text: bytes) -> dict[str, Any]:
        """What the reader of answers tells of it."""
        self._usage.reset(self._state)
        self._usage.feed(self._state, text)
        self._usage.finish(self._state)
        return self._told()

    def recognised(self, text: bytes) -> dict[str, Any] | None:
        """What the known endings alone tell of it."""
        self._usage.reset(self._state)
        if not self._ending.read(self._state, self._point(text), len(text)):
            return None
        self._answer.settle(self._state)
        return self._told()


@pytest.fixture
def reader() -> Reader:
    return Reader()


def answer(
    prompt: Any = 12, output: Any = 345, reason: str | None = "stop", indent: int | None = None, **more: Any
) -> bytes:
    choice = {"index": 0, "message": {"content": "Some text."}, "finish_reason": reason, "stop_reason": None}
    usage = {"prompt_tokens": prompt, "total_tokens": 99, "completion_tokens": output}
    usage.update(more.pop("usage", {}))
    return json.dumps({"choices": [choice], "usage": usage, **more}, indent=indent).encode()


def expected(prompt: int, output: int, reason: str = "stop", cached: int | bool = False) -> dict[str, Any]:
    return {
        "prompt_tokens": prompt,
        "completion_tokens": output,
        "cached_tokens": cached,
        "finish_reason": reason,
        "error": False,
    }


def test_no_ending_is_known_before_one_was_read(reader: Reader) -> None:
    assert reader.recognised(answer()) is None


@pytest.mark.parametrize("indent", [None, 1, 4])
@pytest.mark.parametrize("reason", ["stop", "length", "tool_calls"])
def test_an_ending_is_known_by_one_answer_whatever_its_numbers_and_its_reason(
    reader: Reader, indent: int | None, reason: str
) -> None:
    reader.read(answer(indent=indent))
    told = reader.recognised(answer(7, 1_000_000, reason, indent))
    assert told == expected(7, 1_000_000, reason)


@pytest.mark.parametrize(("said", "cached"), [(0, 0), (8, 8), (9_999_999, 50)])
def test_no_more_of_a_prompt_is_cached_than_it_has(reader: Reader, said: int, cached: int) -> None:
    reader.read(answer(usage={"prompt_tokens_details": {"cached_tokens": 1}}))
    text = answer(50, 60, usage={"prompt_tokens_details": {"cached_tokens": said}})
    assert reader.recognised(text) == reader.read(text) == expected(50, 60, "stop", cached)


@pytest.mark.parametrize(
    "text",
    [
        answer(usage={"prompt_tokens_details": None}),
        answer(service_tier="default"),
        answer(error="none"),
        answer(reason="content_filter"),
        answer(reason=None),
        answer(12345678),
        answer(-1),
        answer(1.5),
        answer().replace(b": 12,", b": 012,"),
        answer().replace(b": 12,", b": ,"),
        answer().replace(b'"finish_reason"', b'"other_reason"'),
        answer()[40:],
        answer()[100:],
        b"}",
    ],
)
def test_an_answer_that_ends_otherwise_is_read_in_full(reader: Reader, text: bytes) -> None:
    fresh = Reader()
    reader.read(answer())
    assert reader.recognised(text) is None
    assert reader.read(text) == fresh.read(text)


@pytest.mark.parametrize(
    "more",
    [
        {"id": "chatcmpl-1"},
        {"error": {"code": 1}},
        {"timings": {"prompt_n": 4}},
        {"usage": {"prompt_tokens_details": {"cached_tokens": 1.0}}},
        {"usage": {"input_tokens": 4}},
        {"logprobs": ["x" * 600]},
        {"many": list(range(20))},
    ],
)
def test_an_ending_that_tells_more_than_whole_numbers_of_tokens_is_not_learned(
    reader: Reader, more: dict[str, Any]
) -> None:
    text = answer(**more)
    told = reader.read(text)
    assert reader.recognised(text) is None
    assert reader.read(text) == told


def test_an_ending_of_a_usage_inside_another_object_is_not_learned(reader: Reader) -> None:
    text = json.dumps(
        {"choices": [{"finish_reason": "stop"}], "part": {"usage": {"prompt_tokens": 1}}}
    ).encode()
    reader.read(text)
    assert reader.recognised(text) is None


def test_another_ending_is_learned_after_some_answers_and_the_first_stays_known(reader: Reader) -> None:
    reader.read(answer())
    other = answer(3, 4, service_tier="default")
    for _ in range(reader.every - 1):
        reader.read(other)
        assert reader.recognised(other) is None
    reader.read(other)
    for _ in range(2):
        assert reader.recognised(other) == expected(3, 4)
        assert reader.recognised(answer(5, 6)) == expected(5, 6)


def test_of_many_endings_the_oldest_is_forgotten(reader: Reader) -> None:
    texts = [answer(service_tier=f"tier-{'x' * k}") for k in range(5)]
    for text in texts:
        for _ in range(reader.every):
            reader.read(text)
    assert [reader.recognised(text) is not None for text in texts] == [False, True, True, True, True]


@settings(max_examples=150, deadline=None)
@given(
    prompt=st.integers(0, 10**9),
    output=st.integers(0, 10**9),
    cached=st.none() | st.integers(0, 10**4),
    reason=st.sampled_from(["stop", "length", "tool_calls", "other"]),
    indent=st.sampled_from([None, 2]),
)
def test_a_reader_that_knows_endings_tells_what_one_tells_that_knows_none(
    prompt: int, output: int, cached: int | None, reason: str, indent: int | None
) -> None:
    details = None if cached is None else {"cached_tokens": cached}
    text = answer(prompt, output, reason, indent, usage={"prompt_tokens_details": details})
    assert KNOWING.read(text) == Reader().read(text)


KNOWING = Reader()
