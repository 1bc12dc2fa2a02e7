"""`lua/tokenweir/core/body/sampling.lua`."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.unit.lua.readers import count, read, user

NOTHING = {
    "temperature": -1,
    "top_p": -1,
    "stop": 0,
    "min_tokens": 0,
    "ignore_eos": 0,
    "logprobs": 0,
    "tool_choice": 0,
    "format": 0,
    "effort": 0,
    "thinking": 0,
    "thinking_budget": 0,
}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
LAST = {"json_schema": {"schema": {"type": "object", "properties": {}}}, "type": "json_schema"}


@pytest.mark.parametrize(
    ("members", "found"),
    [
        ({}, {}),
        ({"temperature": 0}, {"temperature": 0}),
        ({"temperature": 0.75, "top_p": 0.5}, {"temperature": 0.75, "top_p": 0.5}),
        ({"temperature": None}, {}),
        ({"temperature": "hot"}, {}),
        ({"temperature": 1e-1}, {"temperature": 0.1}),
        ({"stop": ["\n"]}, {"stop": 1}),
        ({"stop": "x"}, {"stop": 1}),
        ({"stop": None}, {}),
        ({"ignore_eos": True}, {"ignore_eos": 1}),
        ({"ignore_eos": False}, {}),
        ({"logprobs": True}, {"logprobs": 1}),
        ({"logprobs": 5}, {"logprobs": 1}),
        ({"tool_choice": "none"}, {"tool_choice": 1}),
        ({"tool_choice": "auto"}, {}),
        ({"tool_choice": "required"}, {"tool_choice": 2}),
        ({"tool_choice": {"type": "function"}}, {"tool_choice": 2}),
        ({"response_format": {"type": "json_object"}}, {"format": 1}),
        ({"response_format": {"type": "text"}}, {}),
        ({"response_format": SCHEMA}, {"format": 2}),
        ({"response_format": LAST}, {"format": 2}),
        ({"text": {"format": SCHEMA}}, {"format": 2}),
        ({"guided_choice": ["a", "b"]}, {"format": 2}),
        ({"structured_outputs": {"regex": "a+"}}, {"format": 2}),
        ({"reasoning_effort": "none"}, {"effort": 1}),
        ({"reasoning_effort": "minimal"}, {"effort": 1}),
        ({"reasoning_effort": "low"}, {"effort": 2}),
        ({"reasoning_effort": "medium"}, {"effort": 3}),
        ({"reasoning_effort": "high"}, {"effort": 4}),
        ({"reasoning": {"effort": "low", "summary": "auto"}}, {"effort": 2}),
        ({"reasoning": {"enabled": False}}, {"thinking": -1}),
        ({"enable_thinking": True}, {"thinking": 1}),
        ({"chat_template_kwargs": {"enable_thinking": False}}, {"thinking": -1}),
        ({"chat_template_kwargs": {"thinking": True}}, {"thinking": 1}),
        ({"thinking": {"type": "disabled"}}, {"thinking": -1}),
    ],
)
@pytest.mark.parametrize("writer", [{}, {"separators": (",", ":")}, {"indent": 1}])
def test_members_that_shape_an_answer_are_read(
    members: dict[str, Any], found: dict[str, float], writer: dict[str, Any]
) -> None:
    vector = read({**user("Hi"), **members}, **writer)
    assert {name: round(vector[name], 6) for name in NOTHING} == NOTHING | found


@pytest.mark.parametrize(
    ("members", "name", "tokens"),
    [
        ({"min_tokens": 20}, "min_tokens", 20),
        ({"thinking_budget": 512}, "thinking_budget", 512),
        ({"thinking": {"type": "enabled", "budget_tokens": 4096}}, "thinking_budget", 4096),
        ({"reasoning": {"max_tokens": 1000}}, "thinking_budget", 1000),
        ({"chat_template_kwargs": {"thinking_budget": 64}}, "thinking_budget", 64),
        ({"min_tokens": -5}, "min_tokens", 0),
    ],
)
def test_budgets_are_counted_in_tokens(members: dict[str, Any], name: str, tokens: int) -> None:
    assert count(read({**user("Hi"), **members})[name]) == tokens


@pytest.mark.parametrize("figure", [1e300, 10**400])
def test_no_figure_is_taken_for_more_than_any_engine_produces(figure: float) -> None:
    vector = read({**user("Hi"), "min_tokens": figure, "thinking_budget": figure, "temperature": -figure})
    most = pytest.approx(math.log1p(2**24))
    assert (vector["min_tokens"], vector["thinking_budget"], vector["temperature"]) == (most, most, -(2**24))


def test_members_given_twice_are_no_reason_to_refuse() -> None:
    assert read(user("Hi"))["temperature"] == -1
