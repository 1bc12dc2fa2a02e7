"""The request bodies of the overhead bench."""

from __future__ import annotations

import json

import pytest

from bench.overhead import bodies


@pytest.mark.parametrize("text", ["prose", "code"])
@pytest.mark.parametrize("size", [2048, 20_480, 225_280])
def test_a_body_is_a_chat_of_exactly_the_wanted_size(size: int, text: bodies.Text):
    body = bodies.chat(size, text, seed=1)
    assert len(body) == size
    assert json.loads(body)["messages"][-1]["role"] == "user"


def test_code_has_many_times_the_escapes_of_prose():
    prose, code = (bodies.chat(225_280, text, seed=1).count(b"\\") for text in ("prose", "code"))
    assert code > 20 * prose


def test_a_seed_gives_the_same_body_and_another_seed_another():
    assert bodies.chat(2048, "prose", 1) == bodies.chat(2048, "prose", 1)
    assert bodies.chat(2048, "prose", 1) != bodies.chat(2048, "prose", 2)


def test_a_stream_is_asked_for_with_a_body_that_the_upstream_takes_for_one():
    assert len(bodies.stream()) < 1000
    assert json.loads(bodies.stream())["stream"] is True
