"""`lua/tokenweir/core/body/request.lua`, `request_shape.lua` and `parameters.lua`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.lua.body.parsers import Parser, RefusedError, refusal, user

# What is read of a body.


def test_a_chat_request_tells_what_the_gateway_needs(parser: Parser) -> None:
    out = parser.parse(
        "chat",
        {
            "model": "llama-3-8b",
            "messages": [{"role": "system", "content": "Be kind."}, user("Hello")],
            "stream": True,
            "n": 2,
            "max_tokens": 64,
        },
    )
    assert (out.model, out.stream, out.n, out.max_tokens, out.max_tokens_name) == (
        b"llama-3-8b",
        True,
        2,
        64,
        b"max_tokens",
    )
    assert (out.messages, out.prompt_bytes, out.prompt_tokens, out.media) == (2, 13, False, 0)


@pytest.mark.parametrize("kind", ["chat", "completions", "responses", "embeddings"])
def test_what_is_absent_has_its_default(parser: Parser, kind: str) -> None:
    parser.parse("chat", {"model": "m", "stream": True, "n": 3, "max_tokens": 5, "messages": [user("x")]})
    out = parser.parse(kind, b"{}")
    assert (out.model, out.stream, out.n, out.best_of, out.max_tokens, out.conflict) == (
        False,
        False,
        1,
        False,
        False,
        False,
    )
    assert (out.prompt_bytes, out.prompt_tokens, out.messages, out.prompts) == (0, False, 0, 1)


def test_null_is_absent(parser: Parser) -> None:
    names = ("model", "stream", "n", "max_tokens", "max_completion_tokens", "messages", "tools")
    out = parser.parse("chat", dict.fromkeys(names))
    assert (out.model, out.stream, out.n, out.max_tokens, out.messages) == (False, False, 1, False, 0)


@pytest.mark.parametrize(
    ("kind", "given", "limit", "name"),
    [
        ("chat", {"max_tokens": 5}, 5, b"max_tokens"),
        ("chat", {"max_completion_tokens": 6}, 6, b"max_completion_tokens"),
        ("chat", {"max_tokens": 5, "max_completion_tokens": 6}, 6, b"max_completion_tokens"),
        ("chat", {"max_tokens": 5, "max_completion_tokens": None}, 5, b"max_tokens"),
        ("chat", {"max_output_tokens": 5}, False, False),
        ("completions", {"max_tokens": 0}, 0, b"max_tokens"),
        ("completions", {"max_tokens": 5.0}, 5, b"max_tokens"),
        ("completions", {"max_tokens": -1}, False, False),
        ("chat", {"max_tokens": 5, "n_predict": 6}, 6, b"n_predict"),
        ("completions", {"n_predict": 6, "max_tokens": 5}, 6, b"n_predict"),
        ("chat", {"max_tokens": 5, "n_predict": 4}, 5, b"max_tokens"),
        ("chat", {"max_tokens": 5, "n_predict": -1}, False, False),
        ("chat", {"max_tokens": 5, "n_predict": None}, 5, b"max_tokens"),
        ("chat", {"n_predict": 6}, False, False),
        ("responses", {"max_output_tokens": 7}, 7, b"max_output_tokens"),
        ("responses", {"max_tokens": 7}, False, False),
    ],
)
def test_the_limit_is_that_of_the_member_which_the_engine_obeys(
    parser: Parser, kind: str, given: dict[str, Any], limit: int | bool, name: bytes | bool
) -> None:
    out = parser.parse(kind, given)
    assert (out.max_tokens, out.max_tokens_name) == (limit, name)


@settings(max_examples=150, deadline=None)
@given(name=st.text(max_size=40))
def test_a_models_name_is_decoded(parser: Parser, name: str) -> None:
    out = parser.parse("chat", {"model": name})
    assert out.model == name.encode("utf-8", "surrogatepass")


def test_a_name_hidden_behind_escapes_or_given_twice_is_seen(parser: Parser) -> None:
    out = parser.parse("chat", rb'{"model":"allowed","mod\u0065l":"secret"}')
    assert (out.model, out.conflict) == (b"secret", b"model")
    assert parser.places("model") == [(10, 18), (33, 40)]
    assert parser.span("model") == (33, 40)


@pytest.mark.parametrize("name", ["mab_tokens", "max_tokenz", "ma", "m", "", "max_tokens" * 30])
def test_a_name_that_begins_and_ends_as_a_known_one_is_another(parser: Parser, name: str) -> None:
    content = {"messages": [{"role": "user", "content": "four", "coutent": "five!"}]}
    out = parser.parse("chat", {"max_tokens": 5, name: 7, **content})
    assert (out.max_tokens, out.conflict, out.prompt_bytes) == (5, False, 9)


def test_the_same_value_twice_is_no_conflict(parser: Parser) -> None:
    assert parser.parse("chat", b'{"n":1,"n":1,"x":1,"x":2}').conflict is False
    assert parser.parse("chat", b'{"n":1,"n":2}').conflict == b"n"


def test_of_a_prompt_given_twice_only_the_last_is_counted(parser: Parser) -> None:
    out = parser.parse(
        "chat", b'{"messages":[{"role":"user","content":"long long"},{}],"messages":[{"content":"ab"}]}'
    )
    assert (out.prompt_bytes, out.messages, out.conflict) == (2, 1, b"messages")
    assert parser.opening() is None


def test_places_are_those_of_the_value_alone(parser: Parser) -> None:
    body = b' { "model" : "m" , "stop" : [ 1, 2 ]\n, "seed":9007199254740993 } '
    parser.parse("chat", body)
    (first, last), *_ = parser.places("stop")
    assert body[first - 1 : last] == b"[ 1, 2 ]"
    first, last = parser.span("seed") or (0, 0)
    assert body[first - 1 : last] == b"9007199254740993"
    assert parser.places("absent") == []
    assert parser.span("absent") is None


def test_a_byte_order_mark_is_stepped_over(parser: Parser) -> None:
    assert parser.parse("chat", b'\xef\xbb\xbf{"model":"m"}').model == b"m"


def test_a_text_member_is_decoded_when_it_is_a_string_of_the_allowed_size(parser: Parser) -> None:
    parser.parse("responses", {"previous_response_id": "resp_é", "user": 5, "prompt_cache_key": "k" * 20})
    assert parser.text("previous_response_id") == "resp_é".encode()
    assert parser.text("user") is None
    assert parser.text("prompt_cache_key", 20) == b"k" * 20
    assert parser.text("prompt_cache_key", 19) is None
    assert parser.text("absent") is None


def test_a_cleared_table_keeps_no_body(parser: Parser) -> None:
    parser.parse("chat", {"model": "m"})
    assert parser.out.body is not False
    parser.request.clear(parser.out)
    assert (parser.out.body, parser.out.p, parser.out.model) == (False, False, False)


# What is refused, and how it is said.


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "Invalid JSON: the body is empty, expected '{' at byte offset 0."),
        (b"  \n", "Invalid JSON: the body is empty, expected '{' at byte offset 3."),
        (b"[]", "Invalid JSON: expected '{' at byte offset 0."),
        (b'"model"', "Invalid JSON: expected '{' at byte offset 0."),
        (b"\xff\xfe{\x00}\x00", "Invalid JSON: expected '{' at byte offset 0."),
        (b"{\x00}", "Invalid JSON: expected a member name in double quotes at byte offset 1."),
        (b'{"model":"m",}', "Invalid JSON: expected a member name in double quotes at byte offset 13."),
        (
            b'{"model":"m"} {}',
            "Invalid JSON: expected nothing more after the object, found data at byte offset 14.",
        ),
        (b'{"model":"a\\qb"}', "Invalid JSON: invalid escape at byte offset 11."),
        (b'{"model":"a\\nb\\u00zz"}', "Invalid JSON: invalid \\u escape at byte offset 14."),
        (b'{"messages":[{"content":"x]}', "Invalid JSON: unterminated string that begins at byte offset 24."),
    ],
)
def test_malformed_json_is_refused_with_its_offset(parser: Parser, body: bytes, message: str) -> None:
    code, said, _ = refusal(parser, "chat", body)
    assert (code, said) == ("invalid_json", message)


@pytest.mark.parametrize(
    ("kind", "body", "code", "message"),
    [
        ("chat", {"model": 5}, "invalid_type", "'model' must be a string."),
        ("chat", {"model": ["m"]}, "invalid_type", "'model' must be a string."),
        ("chat", {"model": "m" * 1100}, "invalid_value", "'model' is longer than 1024 bytes."),
        ("chat", {"stream": "true"}, "invalid_type", "'stream' must be true or false."),
        ("chat", {"stream": 1}, "invalid_type", "'stream' must be true or false."),
        ("chat", {"n": 0}, "invalid_value", "'n' must be between 1 and 128."),
        ("chat", {"n": 129}, "invalid_value", "'n' must be between 1 and 128."),
        ("chat", {"n": 1.5}, "invalid_type", "'n' must be a whole number."),
        ("chat", {"n": True}, "invalid_type", "'n' must be a whole number."),
        ("completions", {"best_of": 0}, "invalid_value", "'best_of' must be between 1 and 128."),
        ("chat", {"max_tokens": "256"}, "invalid_type", "'max_tokens' must be a whole number."),
        ("chat", {"max_tokens": 1.5}, "invalid_type", "'max_tokens' must be a whole number."),
        ("chat", {"max_tokens": {}}, "invalid_type", "'max_tokens' must be a whole number."),
        (
            "chat",
            {"max_tokens": -2},
            "invalid_value",
            "'max_tokens' must be between -1 and 9007199254740992.",
        ),
        (
            "chat",
            {"max_tokens": 10**30},
            "invalid_value",
            "'max_tokens' must be between -1 and 9007199254740992.",
        ),
        ("chat", {"messages": "hi"}, "invalid_type", "'messages' must be an array."),
        ("completions", {"prompt": {}}, "invalid_type", "'prompt' must be a string or an array."),
        ("embeddings", {"input": 5}, "invalid_type", "'input' must be a string or an array."),
        ("responses", {"input": False}, "invalid_type", "'input' must be a string or an array."),
        (
            "chat",
            {"Model": "m"},
            "invalid_member",
            "'Model' differs from 'model' in case only; write 'model'.",
        ),
        (
            "chat",
            {"max_to\N{KELVIN SIGN}en\N{LATIN SMALL LETTER LONG S}": 5},
            "invalid_member",
            "'max_to\N{KELVIN SIGN}en\N{LATIN SMALL LETTER LONG S}' differs from 'max_tokens' in case only; "
            "write 'max_tokens'.",
        ),
    ],
)
def test_a_wrong_parameter_is_refused_by_name(
    parser: Parser, kind: str, body: dict[str, Any], code: str, message: str
) -> None:
    assert refusal(parser, kind, body) == (
        code,
        message,
        message.split("'")[-2 if code == "invalid_member" else 1],
    )


def test_a_number_too_large_for_a_double_is_refused(parser: Parser) -> None:
    assert refusal(parser, "chat", b'{"max_tokens":1e999}')[2] == "max_tokens"


def test_the_number_of_members_is_bounded(parser: Parser) -> None:
    parser.parse("chat", {f"x{k}": k for k in range(512)})
    assert refusal(parser, "chat", {f"x{k}": k for k in range(513)})[0] == "too_many_members"
    assert refusal(parser, "chat", {f"x{k}": k for k in range(100_000)})[0] == "too_many_members"
    assert parser.parse("chat", {"model": "m"}).model == b"m"


def test_a_body_of_more_values_than_are_wanted_is_left_to_others(
    require: Callable[[str], Any], pointer_to: Any
) -> None:
    request = require("tokenweir.core.body.request")
    out = request.new()
    body = json.dumps({"model": "m", "logit_bias": {str(k): 1 for k in range(1000)}}).encode()
    at = pointer_to(body)
    assert request.parse_bytes(b"chat", at, len(body), out, 1001) is False
    assert request.parse_bytes(b"chat", at, len(body), out, 1002) is True
    assert out.model == b"m"


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=100), kind=st.sampled_from(["chat", "completions", "responses", "embeddings"]))
def test_no_bytes_make_it_throw(parser: Parser, body: bytes, kind: str) -> None:
    for text in (body, b'{"model":' + body, b'{"messages":[{"content":"' + body, b'{"prompt":[1,' + body):
        try:
            parser.parse(kind, text)
        except RefusedError as refused:
            assert refused.args[0]
