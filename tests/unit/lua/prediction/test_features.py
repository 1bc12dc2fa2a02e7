"""`lua/tokenweir/core/prediction/features.lua` and `turns.lua`: what a request says of itself."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from tests.unit.lua.readers import CORE, count, of_text, read, user


def chat(*messages: tuple[str, Any], **members: Any) -> dict[str, Any]:
    """A chat body of (role, content)."""
    return {"messages": [{"role": role, "content": content} for role, content in messages], **members}


def test_every_feature_has_a_name_and_starts_from_nothing() -> None:
    assert len(set(CORE.names)) == len(CORE.names)
    vector = read({"messages": []})
    assert all(vector[name] == 0 for name in CORE.names[: CORE.past])
    assert vector["messages"] == 0


def test_messages_are_counted_by_role() -> None:
    vector = read(
        chat(
            ("system", "Be kind."),
            ("user", "Hi"),
            ("assistant", "Hello"),
            ("tool", "42"),
            ("assistant", "Done"),
            ("user", "Thanks"),
        )
    )
    names = ("messages", "system_messages", "user_messages", "assistant_messages", "tool_messages")
    assert [count(vector[name]) for name in names] == [6, 1, 2, 2, 1]


def test_sizes_are_bytes_of_text() -> None:
    vector = read(
        chat(
            ("developer", "x" * 10),
            ("user", "first"),
            ("assistant", "a" * 30),
            ("assistant", "b" * 50),
            ("tool", "c" * 7),
            ("user", "é" * 20),
        )
    )
    sizes = ("system_bytes", "user_bytes", "assistant_bytes", "assistant_mean", "tool_bytes", "prompt_bytes")
    assert [count(vector[name]) for name in sizes] == [10, 40, 50, 40, 7, 142]


def test_the_role_may_stand_behind_the_content() -> None:
    body = {"messages": [{"content": "Be kind.", "role": "system"}, {"content": "Hi", "role": "user"}]}
    vector = read(body)
    assert (count(vector["system_bytes"]), count(vector["user_bytes"])) == (8, 2)


def test_only_the_last_message_of_the_user_is_read_for_words() -> None:
    vector = read(chat(("user", "alpha beta"), ("assistant", "gamma"), ("user", "delta")))
    assert vector["words"] == of_text("delta")["words"]


def test_the_input_of_responses_and_the_prompt_of_completions_are_messages_of_the_user() -> None:
    words = of_text("one two")["words"]
    assert read({"prompt": "one two"}, "completions")["words"] == words
    assert read({"prompt": ["first", "one two"]}, "completions")["words"] == words
    vector = read({"input": "one two", "instructions": "Be kind."}, "responses")
    assert (vector["words"], count(vector["system_bytes"])) == (words, 8)
    items = [{"role": "user", "content": [{"type": "input_text", "text": "one two"}]}]
    assert read({"input": items}, "responses")["words"] == words


def test_a_conversation_given_twice_counts_as_it_stands_last() -> None:
    body = b'{"messages":[{"role":"user","content":"a b c"}],"messages":[{"role":"user","content":"d"}]}'
    found = CORE.read(["chat"], [body])
    assert set(found.words.index.tolist()) == of_text("d")["words"]
    assert count(float(found.vectors[0][CORE.names.index("user_messages")])) == 1


def test_the_number_of_tools_counts_and_their_size() -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}] * 3
    vector = read({**user("Hi"), "tools": tools})
    assert count(vector["tools"]) == 3
    assert count(vector["tools_bytes"]) == len(json.dumps(tools))


def test_limits_and_choices_are_features() -> None:
    vector = read({**user("Hi"), "max_tokens": 300, "n": 3, "stream": True})
    assert (count(vector["max_tokens"]), vector["choices"], vector["stream"]) == (300, 3, 1)
    assert read(user("Hi"))["max_tokens"] == 0


def test_pictures_are_counted_and_not_read() -> None:
    url = "data:image/png;base64," + "A" * 1000
    parts = [{"type": "text", "text": "What is this?"}, {"type": "image_url", "image_url": {"url": url}}]
    vector = read(user(parts))
    assert (vector["media"], count(vector["prompt_bytes"])) == (1, 13)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("日本語のテキスト", "ideographs"),
        ("Привет мир", "accents"),
        ("f(x) = {y};", "brackets"),
        ("12345", "digits"),
    ],
)
def test_scripts_show_as_shares(text: str, share: str) -> None:
    names = ("ideographs", "accents", "brackets", "digits")
    vector = of_text(text)
    assert max(names, key=lambda name: vector[name]) == share


def test_one_system_prompt_has_one_number() -> None:
    first = read(chat(("system", "Be kind."), ("user", "a")))["system"]
    assert read(chat(("system", "Be kind."), ("user", "b"), ("assistant", "c")))["system"] == first
    assert read(chat(("system", "Be rude."), ("user", "a")))["system"] != first
    assert read(chat(("user", "a")))["system"] == 0
    assert 0 < first < 2**52


def test_long_system_prompts_differ_by_their_ends_and_size() -> None:
    body = "x" * 9000
    numbers = {
        read(chat(("system", text), ("user", "a")))["system"]
        for text in (body, body + "x", "y" + body[1:], body[:-1] + "y")
    }
    assert len(numbers) == 4


def test_tokens_of_a_prompt_are_estimated_by_script() -> None:
    # 100 common English words are about 125 tokens; 100 ideographs about 100.
    english = of_text("The cat sat on the mat and looked at the moon. " * 10)["tokens"]
    assert 110 <= english <= 135
    assert 80 <= of_text("我" * 100)["tokens"] <= 130
    assert of_text("")["tokens"] == 0


def test_numbers_of_token_ids_count_as_tokens() -> None:
    assert read({"prompt": [1, 2, 3, 4]}, "completions")["tokens"] == 4


def test_a_vector_is_in_single_precision_and_finite() -> None:
    found = CORE.read(["chat"], [json.dumps(user("x " * 100_000)).encode()])
    assert found.vectors.dtype == np.float32
    assert np.isfinite(found.vectors).all()


def test_what_was_read_before_leaves_no_trace() -> None:
    long = {**chat(("system", "s"), ("user", "u ?" * 50)), "temperature": 1, "tools": [{}], "stop": "x"}
    alone = read(user("Hi"))
    found = CORE.read(["chat", "chat"], [json.dumps(long).encode(), json.dumps(user("Hi")).encode()])
    assert dict(zip(CORE.names, found.vectors[1].astype(float).tolist(), strict=True)) == {
        name: alone[name] for name in CORE.names
    }
