"""`lua/tokenweir/core/answer/usage.lua`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

FIGURES = ("prompt_tokens", "completion_tokens", "cached_tokens", "finish_reason", "error")
USAGE = {"prompt_tokens": 12, "completion_tokens": 345, "prompt_tokens_details": {"cached_tokens": 8}}
EXPECTED = {
    "prompt_tokens": 12,
    "completion_tokens": 345,
    "cached_tokens": 8,
    "finish_reason": "stop",
    "error": False,
}


class Reader:
    """Feeds answers to one reused state and tells its figures."""

    def __init__(self) -> None:
        module = new_runtime().eval(b'require("tokenweir.core.answer.usage")')
        self._usage = module[0] if isinstance(module, tuple) else module
        self._state = self._usage.new()

    def read(self, chunks: Iterable[bytes]) -> dict[str, Any]:
        self._usage.reset(self._state)
        for chunk in chunks:
            self._usage.feed(self._state, chunk)
        self._usage.finish(self._state)
        told = {name: self._state[name.encode()] for name in FIGURES}
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in told.items()}

    def is_page(self, chunks: Iterable[bytes]) -> bool:
        self._usage.reset(self._state)
        for chunk in chunks:
            self._usage.feed(self._state, chunk)
        return bool(self._usage.is_page(self._state))

    def kept(self) -> int:
        """Bytes that the state holds on to."""
        return int(self._state.kept) + int(self._state.head.size)


@pytest.fixture(scope="module")
def reader() -> Reader:
    return Reader()


def pieces(text: bytes, size: int) -> list[bytes]:
    return [text[k : k + size] for k in range(0, len(text), size)]


def vllm(content: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "tool_calls": []}
    return {
        "id": "chatcmpl-1",
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": USAGE,
        "prompt_logprobs": None,
    }


def llama_cpp(content: str) -> dict[str, Any]:
    message = {"content": content, "role": "assistant"}
    return {
        "choices": [{"finish_reason": "stop", "index": 0, "message": message}],
        "usage": USAGE,
        "id": "chatcmpl-1",
        "timings": {"prompt_n": 4, "predicted_n": 345},
    }


def responses(content: str) -> dict[str, Any]:
    usage = {"input_tokens": 12, "input_tokens_details": {"cached_tokens": 8}, "output_tokens": 345}
    return {
        "id": "resp_1",
        "error": None,
        "incomplete_details": None,
        "status": "completed",
        "output": [{"content": [{"type": "output_text", "text": content}]}],
        "usage": usage,
        "user": None,
    }


@pytest.mark.parametrize("size", [0, 10, 5_000, 40_000, 300_000])
@pytest.mark.parametrize("engine", [vllm, llama_cpp, responses])
@pytest.mark.parametrize("indent", [None, 2])
def test_the_usage_is_found_in_answers_of_any_size(
    reader: Reader, size: int, engine: Any, indent: int | None
) -> None:
    text = json.dumps(engine('say "hi"\n' * (size // 10)), indent=indent).encode()
    assert reader.read(pieces(text, 4096)) == EXPECTED


def test_embeddings_tell_their_prompt_tokens(reader: Reader) -> None:
    data = [{"embedding": [0.123456] * 4096, "index": k} for k in range(4)]
    text = json.dumps({"object": "list", "data": data, "model": "m", "usage": {"prompt_tokens": 9}}).encode()
    assert reader.read(pieces(text, 16384))["prompt_tokens"] == 9


def test_a_usage_at_the_beginning_of_a_long_answer_is_found(reader: Reader) -> None:
    text = json.dumps(
        {"usage": USAGE, **{k: v for k, v in vllm("x" * 90_000).items() if k != "usage"}}
    ).encode()
    assert reader.read(pieces(text, 4096)) == EXPECTED


def test_a_usage_inside_another_object_is_not_the_answers(reader: Reader) -> None:
    text = json.dumps({"choices": [], "padding": "x" * 90_000, "part": {"usage": USAGE}}).encode()
    assert reader.read([text])["completion_tokens"] is False


def test_a_usage_inside_another_object_of_a_short_answer_is_not_the_answers(reader: Reader) -> None:
    text = json.dumps({"choices": [{"finish_reason": "stop"}], "part": {"usage": USAGE}}).encode()
    told = reader.read([text])
    assert (told["completion_tokens"], told["finish_reason"]) == (False, "stop")


@pytest.mark.parametrize("padding", [0, 200, 400, 2000])
def test_of_several_choices_the_last_finish_reason_counts(reader: Reader, padding: int) -> None:
    choices = [
        {"message": {"content": "x" * padding}, "finish_reason": reason}
        for reason in ("stop", "stop", "length")
    ]
    text = json.dumps({"choices": choices, "usage": USAGE}).encode()
    assert reader.read([text]) == {**EXPECTED, "finish_reason": "length"}


def test_a_finish_reason_of_none_is_told_by_no_other_choice_than_its_own(reader: Reader) -> None:
    choices = [{"finish_reason": "stop"}, {"finish_reason": None}]
    text = json.dumps({"choices": choices, "usage": USAGE}).encode()
    assert reader.read([text]) == reader.read(pieces(text, 7))


def test_a_usage_written_in_the_content_means_nothing(reader: Reader) -> None:
    content = 'x"usage":{"completion_tokens":1},"finish_reason":"length"' * 2000
    assert reader.read(pieces(json.dumps(vllm(content)).encode(), 4096)) == EXPECTED


def test_a_broken_answer_tells_no_cut_number(reader: Reader) -> None:
    text = json.dumps(vllm("x")).encode()
    whole = text.index(b"345") + 3
    assert reader.read([text[: whole - 1]])["completion_tokens"] is False
    assert reader.read([text[: whole + 1]])["completion_tokens"] == 345


def test_an_error_answer_is_seen(reader: Reader) -> None:
    assert reader.read([b'{"error":{"message":"no","code":500}}'])["error"] is True
    assert reader.read([b'{"object":"error","message":"no"}'])["error"] is True


def test_what_is_kept_of_a_long_answer_is_bounded(reader: Reader) -> None:
    text = json.dumps(vllm("x" * 2_000_000)).encode()
    assert reader.read(pieces(text, 8192)) == EXPECTED
    assert reader.kept() <= 4096 + 32768 + 8192


@settings(max_examples=100, deadline=None)
@given(
    size=st.integers(0, 80_000),
    engine=st.sampled_from([vllm, llama_cpp, responses]),
    cuts=st.lists(st.floats(0, 1), max_size=8),
)
def test_the_figures_are_the_same_under_any_cut(
    reader: Reader, size: int, engine: Any, cuts: list[float]
) -> None:
    text = json.dumps(engine("y" * size)).encode()
    bounds = sorted({0, len(text), *(int(c * len(text)) for c in cuts)})
    chunks = [text[a:b] for a, b in pairwise(bounds)]
    assert reader.read(chunks) == EXPECTED


def test_the_figures_are_the_same_byte_by_byte(reader: Reader) -> None:
    for size in (10, 40_000):
        assert reader.read(pieces(json.dumps(vllm("z" * size)).encode(), 1)) == EXPECTED


@settings(max_examples=150, deadline=None)
@given(noise=st.lists(st.binary(max_size=80), max_size=4))
def test_no_bytes_make_it_throw(reader: Reader, noise: list[bytes]) -> None:
    reader.read([*noise, b'"usage"', *noise])
    reader.read([b'{"a":"' + b"x" * 40_000, *noise, b'"usage":', *noise, b'"finish_reason":"', *noise])


@pytest.mark.parametrize(
    ("text", "page"),
    [
        (b"<html></html>", True),
        (b" \r\n\t<!DOCTYPE html>", True),
        (b"<", True),
        (b'{"choices": "<p>"}', False),
        (b"   ", False),
        (b"", False),
    ],
)
@pytest.mark.parametrize("size", [1, 3, 100])
def test_a_page_of_html_is_known_by_its_beginning(reader: Reader, text: bytes, page: bool, size: int) -> None:
    assert reader.is_page(pieces(text, size)) is page
