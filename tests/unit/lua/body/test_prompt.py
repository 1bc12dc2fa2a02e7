"""`lua/tokenweir/core/body/prompt.lua`: what counts as text of the prompt."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.lua.body.parsers import Parser, refusal, user


@settings(max_examples=200, deadline=None)
@given(
    contents=st.lists(st.text(max_size=500 // 12).filter(lambda t: not _has_lone_surrogate(t)), max_size=6),
    ascii_only=st.booleans(),
)
def test_text_counts_by_its_size_in_utf_8_however_it_is_escaped(
    parser: Parser, contents: list[str], ascii_only: bool
) -> None:
    out = parser.parse("chat", {"messages": [user(t) for t in contents]}, ensure_ascii=ascii_only)
    assert out.prompt_bytes == sum(len(t.encode()) for t in contents)
    assert out.messages == len(contents)


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


@pytest.mark.parametrize(
    "text", ["中文字符。" * 4000, 'def f():\n\treturn "x"\n' * 3000, "plain " * 9000, "é😀" * 9000]
)
@pytest.mark.parametrize("messages", [1, 20])
def test_long_text_is_counted_within_two_percent(parser: Parser, text: str, messages: int) -> None:
    size = len(text) // messages
    parts = [text[k * size : (k + 1) * size] for k in range(messages)]
    out = parser.parse("chat", {"messages": [user(t) for t in parts]})
    assert out.prompt_bytes == pytest.approx(sum(len(t.encode()) for t in parts), rel=0.02)


DATA_URL = "data:image/png;base64," + "A" * 5000


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": DATA_URL, "detail": "high"}},
        {"type": "input_image", "image_url": DATA_URL},
        {"type": "input_audio", "input_audio": {"data": "A" * 5000, "format": "wav"}},
        {"type": "video_url", "video_url": {"url": DATA_URL}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": DATA_URL}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 5000}},
    ],
)
def test_media_are_counted_apart_from_text(parser: Parser, part: dict[str, Any]) -> None:
    out = parser.parse("chat", {"messages": [user([{"type": "text", "text": "What is this?"}, part, part])]})
    assert (out.prompt_bytes, out.media) == (13, 2)


def test_a_text_that_looks_like_media_is_text(parser: Parser) -> None:
    assert parser.parse("chat", {"messages": [user(DATA_URL)]}).prompt_bytes == len(DATA_URL)


def test_tool_calls_and_their_results_are_text(parser: Parser) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get", "arguments": '{"a":1}'}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
    ]
    assert parser.parse("chat", {"messages": messages}).prompt_bytes == 3 + 7 + 2


def test_tool_definitions_count_as_the_json_that_templates_print(parser: Parser) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    out = parser.parse("chat", {"tools": tools, "functions": [], "messages": [user("x")]})
    assert out.prompt_bytes == len(json.dumps(tools)) + 2 + 1


@pytest.mark.parametrize(
    ("prompt", "figures"),
    [
        ("Hello", (5, False, 1)),
        (["Hello", "you"], (8, False, 2)),
        ([1, 22, 333], (0, 3, 1)),
        ([0, 0, 1], (0, 3, 1)),
        ([128000], (0, 1, 1)),
        ([1234567, 7654321], (0, 2, 1)),
        ([[1, 2], [3], []], (0, 3, 3)),
        (["a", [1, 2]], (1, 2, 2)),
        ([], (0, False, 1)),
        ("", (0, False, 1)),
        (None, (0, False, 1)),
    ],
)
@pytest.mark.parametrize(("kind", "name"), [("completions", "prompt"), ("embeddings", "input")])
def test_a_prompt_may_be_text_token_ids_or_a_list_of_either(
    parser: Parser, kind: str, name: str, prompt: Any, figures: tuple[int, int | bool, int]
) -> None:
    for writer in ({}, {"separators": (",", ":")}, {"indent": 1}):
        out = parser.parse(kind, {name: prompt}, **writer)
        assert (out.prompt_bytes, out.prompt_tokens, out.prompts) == figures


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 10**9), max_size=50), spaces=st.booleans())
def test_every_token_id_is_counted(parser: Parser, ids: list[int], spaces: bool) -> None:
    out = parser.parse("completions", {"prompt": ids}, separators=(", ", ": ") if spaces else (",", ":"))
    assert out.prompt_tokens == (len(ids) or False)


@pytest.mark.parametrize(
    "broken", [b"[1,02]", b"[00,1]", b"[1,,2]", b"[1,2,]", b"[,1]", b"[1 2]", b"[1,-]", b"[1,2"]
)
def test_a_broken_list_of_numbers_is_refused(parser: Parser, broken: bytes) -> None:
    assert refusal(parser, "completions", b'{"prompt":' + broken + b"}")[0] == "invalid_json"


def test_the_input_of_responses_is_a_text_or_a_list_of_items(parser: Parser) -> None:
    out = parser.parse("responses", {"input": "Hello", "instructions": "Be kind."})
    assert (out.prompt_bytes, out.messages) == (13, 0)
    items = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_image", "image_url": DATA_URL}],
        },
        {"type": "function_call_output", "call_id": "c1", "output": "42"},
    ]
    out = parser.parse("responses", {"input": items})
    assert (out.prompt_bytes, out.messages, out.media) == (4, 2, 1)
