"""`lua/tokenweir/core/body/prefix_blocks.lua`: hashes of the beginnings of prompts."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()
READ = RUNTIME.eval(
    b"""function(kind, body)
      local request = require "tokenweir.core.body.request"
      local out = {}
      local ok, code, message = request.parse(kind, body, out)
      assert(ok, message)
      local blocks, list = out.blocks, {}
      for k = 0, blocks.count - 1 do
        list[k + 1] = bit.tohex(blocks.hash[k]) .. ":" .. blocks.bytes_to[k]
      end
      return table.concat(list, " ")
    end"""
)


def blocks(body: dict[str, Any], kind: str = "chat") -> list[str]:
    """The beginnings of a body's prompt: hash and end."""
    return bytes(READ(kind.encode(), json.dumps(body).encode())).decode().split()


def chat(*texts: str, **members: Any) -> dict[str, Any]:
    messages = [{"role": "user", "content": text} for text in texts]
    return {"model": "m", "messages": messages, **members}


def ends(found: list[str]) -> list[int]:
    return [int(item.partition(":")[2]) for item in found]


def test_they_end_close_together_at_first_and_farther_apart_later() -> None:
    found = ends(blocks(chat("x" * 2_000_000)))
    assert found[:3] == [1024, 2048, 3072]
    assert found[15:18] == [16_384, 20_480, 24_576]
    assert len(found) == 64
    assert found[-1] == 16 * 1024 * (1 + 4 + 16 + 64)


def test_a_short_prompt_has_none() -> None:
    assert blocks(chat("x" * 1000)) == []


def test_a_later_turn_begins_with_the_beginnings_of_the_one_before() -> None:
    first = blocks(chat("system " * 400, "question " * 300))
    later = blocks(chat("system " * 400, "question " * 300, "answer " * 500, "and then?"))
    assert first
    assert later[: len(first)] == first
    assert len(later) > len(first)


@settings(max_examples=50, deadline=None)
@given(texts=st.lists(st.text(min_size=1, max_size=3000), min_size=1, max_size=5), data=st.data())
def test_one_changed_letter_changes_every_beginning_that_holds_it(
    texts: list[str], data: st.DataObject
) -> None:
    texts = [text.encode("ascii", "replace").decode().replace('"', "q").replace("\\", "b") for text in texts]
    k = data.draw(st.integers(0, len(texts) - 1))
    at = data.draw(st.integers(0, len(texts[k]) - 1))
    changed = list(texts)
    changed[k] = texts[k][:at] + ("B" if texts[k][at] != "B" else "C") + texts[k][at + 1 :]
    one, other = blocks(chat(*texts)), blocks(chat(*changed))
    escaped = [len(json.dumps(text)) - 2 for text in texts]
    place = sum(escaped[:k]) + len(json.dumps(texts[k][:at])) - 2
    for a, b in zip(one, other, strict=False):
        if int(a.partition(":")[2]) <= place:
            assert a == b
        elif int(a.partition(":")[2]) > place + 6:
            assert a != b


def test_other_parameters_change_nothing() -> None:
    text = "word " * 1000
    assert blocks(chat(text)) == blocks(chat(text, temperature=0.5, stream=True, max_tokens=5))


def test_where_texts_are_parted_makes_a_difference() -> None:
    assert blocks(chat("ab" * 1000)) != blocks(chat("ab" * 500, "ab" * 500))


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("completions", {"model": "m", "prompt": "p" * 3000}),
        ("responses", {"model": "m", "input": "p" * 3000}),
        ("responses", {"model": "m", "instructions": "p" * 3000, "input": "x"}),
        (
            "chat",
            {"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "p" * 3000}]}]},
        ),
    ],
)
def test_every_kind_of_prompt_has_them(kind: str, body: dict[str, Any]) -> None:
    assert ends(blocks(body, kind)) == [1024, 2048]


def test_images_do_not_count() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 5000}}
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": [image, {"type": "text", "text": "x" * 1500}]}],
    }
    assert ends(blocks(body)) == [1024]


def test_a_body_read_in_a_thread_has_the_same(require: Any, lua: Any) -> None:
    load = lua.eval(
        b"""function()
          local blocks = require "tokenweir.core.body.prefix_blocks"
          local bytes = require "tokenweir.core.bytes"
          local one, other = blocks.new(), blocks.new()
          local text = ("some text "):rep(500)
          blocks.feed(one, bytes.of(text), 0, #text)
          blocks.load(other, blocks.dump(one))
          return one.count, other.count, one.hash[3] == other.hash[3], other.bytes
        end"""
    )
    assert load() == (4, 4, True, 5000)


def test_a_block_that_ends_in_a_later_text_has_all_texts_before_it() -> None:
    texts = ["a" * 300, "", "b" * 700, "c" * 100, "d" * 10]
    found = blocks(chat(*texts))
    assert ends(found) == [1024]
    for k in (0, 2, 3):
        changed = [*texts[:k], "x" + texts[k][1:], *texts[k + 1 :]]
        assert blocks(chat(*changed)) != found
    assert blocks(chat(*texts[:4], "y" * 10)) == found
