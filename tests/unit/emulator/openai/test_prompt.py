"""What the model reads."""

from typing import Any

import pytest

from emulator.openai import prompt
from emulator.openai.errors import ApiError

USER = {"role": "user", "content": "hello"}


def test_a_next_turn_begins_with_the_last_one_and_its_answer() -> None:
    first = prompt.chat([USER], None).text + "the sea "
    second = prompt.chat([USER, {"role": "assistant", "content": "the sea "}, USER], None).text
    assert second.startswith(first)


def test_parts_are_joined_and_an_image_has_its_own_length() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert "<|user|>ab\n" in prompt.turns([{"role": "user", "content": parts}], "messages")
    image = [{"type": "image_url", "image_url": {"url": "x" * 100_000}}]
    found = prompt.chat([{"role": "user", "content": image}], None)
    assert prompt.IMAGE_TOKENS < found.tokens < prompt.IMAGE_TOKENS + 20


def test_a_message_without_content_may_call_tools() -> None:
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    assert '[{"id": "1"}]' in prompt.turns([message], "messages")


def test_tools_are_read_too() -> None:
    assert prompt.chat([USER], [{"type": "function"}]).tokens > prompt.chat([USER], None).tokens


@pytest.mark.parametrize(
    "messages", [None, [], "x", [1], [{"content": "x"}], [{"role": "user", "content": 5}]]
)
def test_messages_that_are_none_are_refused(messages: Any) -> None:
    with pytest.raises(ApiError) as raised:
        prompt.chat(messages, None)
    assert raised.value.param and raised.value.param.startswith("messages")


@pytest.mark.parametrize(
    ("value", "lengths"),
    [("abcdefgh", [2]), (["a", "abcde"], [1, 2]), ([1, 2, 3], [3]), ([[1], [2, 3]], [1, 2])],
)
def test_plain_prompts_are_texts_or_tokens(value: Any, lengths: list[int]) -> None:
    assert [found.tokens for found in prompt.plain(value, "prompt")] == lengths


@pytest.mark.parametrize("value", [None, [], 5, [{}], [["a"]]])
def test_other_prompts_are_refused(value: Any) -> None:
    with pytest.raises(ApiError):
        prompt.plain(value, "input")
