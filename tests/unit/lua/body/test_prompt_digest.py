"""`lua/tokenweir/core/body/prompt_digest.lua`: what tells prompts and conversations apart."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.body.parsers import Parser, user


def test_the_digest_is_that_of_the_prompt_alone(parser: Parser) -> None:
    parser.parse("chat", {"model": "a", "messages": [user("x")], "n": 1})
    first = parser.digest()
    parser.parse("chat", {"temperature": 1, "messages": [user("x")], "model": "b"})
    assert parser.digest() == first
    assert len(first) == 16
    assert parser.digest(7) != first
    parser.parse("chat", {"messages": [user("y")]})
    assert parser.digest() != first


def test_the_digest_tells_members_apart(parser: Parser) -> None:
    parser.parse("completions", {"prompt": "ab"})
    first = parser.digest()
    parser.parse("completions", {"suffix": "ab"})
    assert parser.digest() != first


def test_a_body_without_a_prompt_has_no_digest(parser: Parser) -> None:
    parser.parse("chat", {"model": "a", "n": 1})
    assert parser.digest() is None


def test_of_other_bodies_all_but_the_model_s_name_is_hashed(parser: Parser) -> None:
    def digest(**members: Any) -> bytes:
        parser.parse("other", members)
        return parser.digest()

    first = digest(model="a", query="x", documents=["y"])
    assert first == digest(model="another", query="x", documents=["y"])
    assert first != digest(model="a", query="x", documents=["z"])
    assert first != digest(model="a", query="q", documents=["y"])
    assert digest(query="x") != digest(query="y")


def conversation(
    turns: int, system: str = "Be kind.", first: str = "Hello", model: str = "m"
) -> dict[str, Any]:
    messages = [{"role": "system", "content": system}, user(first)]
    for k in range(turns):
        messages += [{"role": "assistant", "content": f"answer {k}"}, user(f"question {k}")]
    return {"model": model, "messages": messages}


@pytest.mark.parametrize("writer", [{}, {"separators": (",", ":")}, {"indent": 2}])
def test_all_turns_of_a_chat_open_alike(parser: Parser, writer: dict[str, Any]) -> None:
    openings = set()
    for turns in range(4):
        parser.parse("chat", conversation(turns), **writer)
        openings.add(parser.opening())
    assert len(openings) == 1
    assert None not in openings


def test_another_question_system_message_or_model_opens_otherwise(parser: Parser) -> None:
    openings = set()
    long = "x" * 50_000
    for one in (
        conversation(1),
        conversation(1, first="Bye"),
        conversation(1, system="Be rude."),
        conversation(1, model="other"),
        conversation(1, system=long),
        conversation(1, system=long, first="Bye"),
        conversation(1, system="y" + long),
    ):
        parser.parse("chat", one)
        openings.add(parser.opening())
    assert len(openings) == 7


def test_without_a_message_of_a_user_there_is_no_opening(parser: Parser) -> None:
    for body in ({}, {"messages": []}, {"messages": [{"role": "system", "content": "x"}]}):
        parser.parse("chat", body)
        assert parser.opening() is None
    parser.parse("responses", {"input": "Hello"})
    assert parser.opening() is None


def test_the_items_of_responses_open_a_chat_too(parser: Parser) -> None:
    parser.parse("responses", {"model": "m", "input": [user("a")]})
    first = parser.opening()
    parser.parse(
        "responses", {"model": "m", "input": [user("a"), {"role": "assistant", "content": "b"}, user("c")]}
    )
    assert first is not None
    assert parser.opening() == first


def test_tools_after_the_messages_do_not_change_how_a_chat_opens(parser: Parser) -> None:
    parser.parse("chat", conversation(1))
    first = parser.opening()
    parser.parse("chat", {**conversation(1), "tools": [{"type": "function"}]})
    assert parser.opening() == first
