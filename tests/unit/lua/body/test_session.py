"""`lua/tokenweir/core/body/session.lua`: which requests are one session."""

from __future__ import annotations

import json
from typing import Any

import pytest


class Sessions:
    """Sessions of bodies."""

    def __init__(self, lua: Any) -> None:
        self.lua = lua
        self.request = self._require("body.request")
        self.session = self._require("body.session")

    def _require(self, name: str) -> Any:
        module = self.lua.eval(f'require("tokenweir.core.{name}")'.encode())
        return module[0] if isinstance(module, tuple) else module

    def of(
        self,
        body: Any,
        kind: str = "chat",
        *,
        header: str | None = None,
        by_user: bool = False,
        seed: int = 0,
    ) -> Any:
        out = self.lua.table()
        answer = self.request.parse(kind.encode(), json.dumps(body).encode(), out)
        assert (answer[0] if isinstance(answer, tuple) else answer) is True, answer
        return self.session.identify(header.encode() if header else None, out, by_user, seed)


@pytest.fixture
def sessions(lua: Any) -> Sessions:
    """The modules in one Lua."""
    return Sessions(lua)


def chat(*texts: str, model: str = "m", **members: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[k % 2], "content": text} for k, text in enumerate(texts)]
    return {"model": model, "messages": [{"role": "system", "content": "be kind"}, *messages], **members}


def test_later_turns_of_a_chat_are_the_same_session(sessions: Sessions) -> None:
    first = sessions.of(chat("hello"))
    assert first
    assert sessions.of(chat("hello", "hi", "and then?")) == first
    assert sessions.of(chat("hello", "hi", temperature=0.3, stream=True)) == first


def test_another_opening_or_model_is_another_session(sessions: Sessions) -> None:
    first = sessions.of(chat("hello"))
    assert sessions.of(chat("hello!")) != first
    assert sessions.of(chat("hello", model="other")) != first


def test_the_header_goes_before_the_cache_key_and_that_before_the_messages(sessions: Sessions) -> None:
    by_header = sessions.of(chat("a", prompt_cache_key="k"), header="s1")
    assert sessions.of(chat("b", prompt_cache_key="other"), header="s1") == by_header
    by_key = sessions.of(chat("a", prompt_cache_key="k"))
    assert sessions.of(chat("b", prompt_cache_key="k")) == by_key
    assert len({by_header, by_key, sessions.of(chat("a"))}) == 3


def test_the_same_name_from_two_sources_is_two_sessions(sessions: Sessions) -> None:
    assert sessions.of(chat("a"), header="s") != sessions.of(chat("a", prompt_cache_key="s"))


def test_the_user_names_a_session_only_if_asked_for(sessions: Sessions) -> None:
    plain = sessions.of(chat("a"))
    assert sessions.of(chat("a", user="u1")) == plain
    named = sessions.of(chat("a", user="u1"), by_user=True)
    assert named not in {plain, sessions.of(chat("a", user="u2"), by_user=True)}
    assert sessions.of(chat("b", user="u1"), by_user=True) == named


def test_a_name_under_two_api_keys_is_two_sessions(sessions: Sessions) -> None:
    seeds = [sessions.session.seed(name) for name in (b"team-a", b"team-b")]
    assert len({sessions.of(chat("a"), header="1", seed=seed) for seed in (0, *seeds)}) == 3


def test_items_of_the_responses_api_are_a_chat_too(sessions: Sessions) -> None:
    def ask(*texts: str) -> dict[str, Any]:
        return {"model": "m", "input": [{"role": "user", "content": text} for text in texts]}

    first = sessions.of(ask("hello"), "responses")
    assert first == sessions.of(ask("hello", "more"), "responses")


def test_a_bare_prompt_tells_no_session(sessions: Sessions) -> None:
    assert sessions.of({"model": "m", "prompt": "Once upon"}, "completions") is None
    assert sessions.of({"model": "m", "input": "text"}, "embeddings") is None
    assert sessions.of({"model": "m", "prompt": "Once upon"}, "completions", header="s")


def test_an_empty_name_names_nothing(sessions: Sessions) -> None:
    assert sessions.of(chat("a", prompt_cache_key="")) == sessions.of(chat("a"))


def test_halves_are_32_bit_numbers(sessions: Sessions) -> None:
    for half in sessions.of(chat("a"), header="s"):
        assert -(2**31) <= half < 2**31
