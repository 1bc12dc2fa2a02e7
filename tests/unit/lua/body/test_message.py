"""`on_whole` of `lua/tokenweir/core/body/prompt.lua`: messages read at once, as if member by member."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.lua.body.parsers import Parser, refusal
from tokenweir.luavm import new_runtime

READ = new_runtime().eval(
    b"""function(body, most)
      local bytes = require "tokenweir.core.bytes"
      local request = require "tokenweir.core.body.request"
      local turns = require "tokenweir.core.body.turns"
      local out, told = request.new(), {}
      local ok = request.parse_bytes("chat", bytes.of(body), #body, out, most)
      if not ok then
        return tostring(ok)
      end
      local tally = out.tally
      for role = turns.TOOL, turns.ASSISTANT do
        told[#told + 1] = tally.turns.count[role] .. ":" .. tally.turns.total[role]
        for _, last in ipairs { false, true } do
          local first, stop = turns.span(tally.turns, role, last, true)
          told[#told + 1] = first < 0 and "-" or body:sub(first + 1, stop)
        end
      end
      local start, stop = tally.start[0], tally.start[1]
      told[#told + 1] = out.messages .. " " .. out.prompt_bytes .. " " .. tally.user_item
      -- Where the next message begins, by what stands there but for blanks.
      told[#told + 1] = stop < 0 and "-" or body:sub(stop + 1):gsub("%s", "")
      for k = 0, out.blocks.count - 1 do
        told[#told + 1] = bit.tohex(out.blocks.hash[k])
      end
      return table.concat(told, "|")
    end"""
)

# The first two are read at once; of the others nothing is.
AT_ONCE = [(", ", ": "), (",", ":")]
ONE_BY_ONE = [(" , ", " : "), (",\n", ":\t")]

ROLE = st.sampled_from(["user", "assistant", "system", "developer", "tool", "", 'us"er', "\\", "usér"])
MESSAGES = st.lists(st.fixed_dictionaries({"role": ROLE, "content": st.text(max_size=400)}), max_size=8)


def read(messages: list[Any], separators: tuple[str, str], most: int = 1000) -> bytes:
    return bytes(READ(json.dumps({"messages": messages}, separators=separators).encode(), most))


@settings(max_examples=200, deadline=None)
@given(messages=MESSAGES)
def test_a_message_tells_the_same_with_whichever_blanks_it_is_written(
    messages: list[dict[str, str]],
) -> None:
    told = {read(messages, separators) for separators in AT_ONCE + ONE_BY_ONE}
    assert len(told) == 1


@pytest.mark.parametrize("separators", AT_ONCE)
@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"content": "Hi", "role": "user"},
        {"role": "user", "content": None},
        {"role": None, "content": "Hi"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}]},
        {"role": "user", "content": "Hi", "name": "A"},
        {"role": "user", "contents": "Hi"},
        {"roles": "user", "content": "Hi"},
        {},
    ],
)
def test_a_message_of_another_form_is_read_member_by_member(
    message: dict[str, Any], separators: tuple[str, str]
) -> None:
    messages = [message, {"role": "user", "content": "Then?"}, message]
    assert read(messages, separators) == read(messages, ONE_BY_ONE[0])


@pytest.mark.parametrize("separators", AT_ONCE)
def test_it_counts_as_one_container_and_one_comma_of_the_values_that_are_read(
    separators: tuple[str, str],
) -> None:
    messages = [{"role": "user", "content": "Hi"}] * 3
    for most in range(12):
        assert read(messages, separators, most) == read(messages, ONE_BY_ONE[0], most)


@pytest.mark.parametrize("separators", AT_ONCE)
def test_a_message_that_breaks_off_is_refused_wherever_it_does(
    parser: Parser, separators: tuple[str, str]
) -> None:
    body = json.dumps({"messages": [{"role": "user", "content": "Hi"}]}, separators=separators).encode()
    for size in range(1, len(body)):
        assert refusal(parser, "chat", body[:size])[0] == "invalid_json"
    for at in (body.index(b"user") - 2, body.index(b"content") + 8, len(body) - 3):
        assert refusal(parser, "chat", body[:at] + b"," + body[at:])[0] == "invalid_json"
