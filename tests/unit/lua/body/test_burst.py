"""`lua/tokenweir/core/body/burst.lua`: short answers, and every other byte as it was."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

LIMIT = 256


class Burst:
    """Bodies in burst mode."""

    def __init__(self, lua: Any) -> None:
        self.lua = lua
        self.request, self.burst, self.splice = (
            self._require(name) for name in ("body.request", "body.burst", "json.splice")
        )

    def _require(self, name: str) -> Any:
        module = self.lua.eval(f'require("tokenweir.core.{name}")'.encode())
        return module[0] if isinstance(module, tuple) else module

    def parse(self, body: bytes, kind: str = "chat") -> Any:
        out = self.lua.table()
        answer = self.request.parse(kind.encode(), body, out)
        assert (answer[0] if isinstance(answer, tuple) else answer) is True, answer
        return out

    def __call__(self, body: bytes, kind: str = "chat") -> bytes:
        """The body as the engine gets it."""
        parsed = self.parse(body, kind)
        edits = self.lua.table()
        if self.burst.degrades(parsed, LIMIT):
            self.burst.edit(edits, parsed, LIMIT)
        if parsed.conflict:
            self.splice.agree(edits, parsed)
        changed = self.splice.apply(body, edits)
        assert not isinstance(changed, tuple), changed
        return bytes(changed)


@pytest.fixture
def burst(lua: Any) -> Burst:
    """The modules in one Lua."""
    return Burst(lua)


CHAT = b'"messages":[{"role":"user","content":"max_tokens, logprobs"}]'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"max_tokens": 1000 ,%s}', b'{"max_tokens": 256 ,%s}'),
        (b'{%s, "max_completion_tokens":999}', b'{%s, "max_completion_tokens":256}'),
        (
            b'{"max_tokens":300,"max_completion_tokens":400,%s}',
            b'{"max_tokens":256,"max_completion_tokens":256,%s}',
        ),
        (
            b'{"max_tokens":100,"max_completion_tokens":400,%s}',
            b'{"max_tokens":100,"max_completion_tokens":256,%s}',
        ),
        (b'{"max_tokens":null,%s}', b'{"max_tokens":256,%s}'),
        (b'{"max_tokens":-1,%s}', b'{"max_tokens":256,%s}'),
        (b"{%s}", b'{%s,"max_tokens":256}'),
        (b"{ %s\n}", b'{ %s,"max_tokens":256\n}'),
        (b'{"max_tokens":9,"logprobs":true,%s}', b'{"max_tokens":9,%s}'),
        (b'{"logprobs":true, "max_tokens":9,%s}', b'{"max_tokens":9,%s}'),
        (b'{ "logprobs" : true ,\n "max_tokens":9,%s}', b'{ "max_tokens":9,%s}'),
        (b'{"max_tokens":9,%s,"logprobs":true}', b'{"max_tokens":9,%s}'),
        (b'{"max_tokens":9,%s , "logprobs":true , "top_logprobs": 5 }', b'{"max_tokens":9,%s }'),
        (b'{"logprobs":true,"top_logprobs":5,"max_tokens":9,%s}', b'{"max_tokens":9,%s}'),
        (b'{%s,"logprobs":true}', b'{%s,"max_tokens":256}'),
        (b'{"logprobs":true,"x":1,"top_logprobs":2,%s,"max_tokens":500}', b'{"x":1,%s,"max_tokens":256}'),
        (b'{"max_tokens":600,"min_tokens":500,%s}', b'{"max_tokens":256,"min_tokens":256,%s}'),
        (b'{"max_tokens":9,"n_predict":500,%s}', b'{"max_tokens":9,"n_predict":256,%s}'),
        (b'{"n_predict":-1,%s}', b'{"n_predict":256,%s,"max_tokens":256}'),
        (b'{"n_predict":9,%s}', b'{"n_predict":9,%s,"max_tokens":256}'),
    ],
)
def test_the_limit_is_brought_down_and_logprobs_go(burst: Burst, before: bytes, after: bytes) -> None:
    assert burst(before % CHAT) == after % CHAT


@pytest.mark.parametrize(
    "body",
    [
        b'{"max_tokens":256,%s}',
        b'{"max_tokens" : 1 , %s , "logprobs":false, "top_logprobs" : null}',
        b'{"max_completion_tokens":10,"max_tokens":20,%s}',
    ],
)
def test_who_asks_for_no_more_is_left_byte_for_byte(burst: Burst, body: bytes) -> None:
    assert burst(body % CHAT) == body % CHAT


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (rb'{"max\u005ftokens":1000,%s}', rb'{"max\u005ftokens":256,%s}'),
        (rb'{"max_tokens":9,"log\u0070robs":true,%s}', b'{"max_tokens":9,%s}'),
        (b'{"max_tokens":1000,%s,"max_tokens":2000}', b'{"max_tokens":256,%s,"max_tokens":256}'),
        (b'{"max_tokens":1000,%s,"max_tokens":20}', b'{"max_tokens":20,%s,"max_tokens":20}'),
        (b'{"max_tokens":20,%s,"max_tokens":2000}', b'{"max_tokens":256,%s,"max_tokens":256}'),
        (b'{"logprobs":true,%s,"logprobs":true,"max_tokens":9}', b'{%s,"max_tokens":9}'),
    ],
    ids=["escaped", "escaped logprobs", "both over", "last below", "last over", "logprobs twice"],
)
def test_escaped_and_duplicate_members(burst: Burst, before: bytes, after: bytes) -> None:
    assert burst(before % CHAT) == after % CHAT


def test_the_responses_api_has_a_limit_of_its_own(burst: Burst) -> None:
    assert burst(b'{"input":"hi"}', "responses") == b'{"input":"hi","max_output_tokens":256}'
    assert (
        burst(b'{"input":"hi","max_output_tokens":1e3,"top_logprobs":3}', "responses")
        == b'{"input":"hi","max_output_tokens":256}'
    )


def test_completions_take_a_number_of_logprobs(burst: Burst) -> None:
    assert burst(b'{"prompt":"x","logprobs":0}', "completions") == b'{"prompt":"x","max_tokens":256}'


def test_embeddings_have_no_output_to_shorten(burst: Burst) -> None:
    assert not burst.burst.applies(b"embeddings")
    assert not burst.burst.applies(b"other")
    assert burst.burst.applies(b"responses")


def test_a_model_that_is_inserted_too_finds_its_comma(burst: Burst) -> None:
    body = b'{"logprobs":true,"top_logprobs":1}'
    parsed = burst.parse(body)
    edits = burst.lua.table()
    burst.burst.edit(edits, parsed, LIMIT)
    burst.splice.set_member(edits, parsed, b"model", b'"m"')
    assert json.loads(bytes(burst.splice.apply(body, edits))) == {"max_tokens": 256, "model": "m"}


MEMBERS = st.lists(
    st.tuples(
        st.sampled_from(
            ["max_tokens", "max_completion_tokens", "logprobs", "top_logprobs", "x", "temperature"]
        ),
        st.sampled_from(["1", "255", "256", "257", "99999", "-1", "null"]),
    ),
    max_size=8,
)
SPACE = st.text(" \n\t", max_size=2)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(members=MEMBERS, space=SPACE, compact=st.booleans())
def test_whatever_the_body_it_stays_json_and_is_short(
    burst: Burst, members: list[tuple[str, str]], space: str, compact: bool
) -> None:
    texts = [f'{space}"{name}"{space}:{space}{value}{space}' for name, value in members]
    if not compact:
        texts.insert(len(texts) // 2, f'{space}"messages":[]')
    body = ("{" + ",".join(texts) + "}").encode()
    before, after = json.loads(body), json.loads(burst(body))
    limits = [after.get(name) for name in ("max_tokens", "max_completion_tokens") if name in after]
    assert limits
    assert all(value is not None and 0 <= value <= LIMIT for value in limits)
    for name in ("logprobs", "top_logprobs"):
        assert after.get(name) is None
    kept = {"x", "temperature", "messages"}
    assert {name: after[name] for name in after if name in kept} == {
        name: before[name] for name in before if name in kept
    }
