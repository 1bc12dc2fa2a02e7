"""`lua/tokenweir/core/body/request.lua`, `parameters.lua`, `prompt.lua` and `request_shape.lua`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime


class RefusedError(Exception):
    """A body that was refused: code, message, parameter."""

    def __init__(self, code: bytes, message: bytes, param: bytes | None) -> None:
        super().__init__(code.decode(), message.decode(), param.decode() if param else None)


class Parser:
    """`request.parse` into one reused table."""

    def __init__(self) -> None:
        runtime = new_runtime()
        module = runtime.eval(b'require("tokenweir.core.body.request")')
        self.request = module[0] if isinstance(module, tuple) else module
        self.out = runtime.table()

    def parse(self, kind: str, body: bytes | dict[str, Any], **writer: Any) -> Any:
        if isinstance(body, dict):
            body = json.dumps(body, **writer).encode("utf-8", "surrogatepass")
        ok, *refusal = self.request.parse(kind.encode(), body, self.out)
        if not ok:
            raise RefusedError(*refusal)
        return self.out

    def places(self, name: str) -> list[tuple[int, int]]:
        out = self.out
        here = [k for k in range(1, int(out.members) + 1) if out.names[k] == name.encode()]
        return [(int(out.firsts[k]) + 1, int(out.lasts[k])) for k in here]

    def span(self, name: str) -> tuple[int, int] | None:
        return self.request.span(self.out, name.encode())

    def digest(self, *seed: int) -> bytes:
        return self.request.digest(self.out, *seed)

    def opening(self) -> bytes | None:
        return self.request.opening_digest(self.out)

    def text(self, name: str, *limit: int) -> bytes | None:
        return self.request.text(self.out, name.encode(), *limit)


@pytest.fixture(scope="module")
def parser() -> Parser:
    return Parser()


def refusal(parser: Parser, kind: str, body: bytes | dict[str, Any]) -> tuple[str, str, str | None]:
    with pytest.raises(RefusedError) as refused:
        parser.parse(kind, body)
    return refused.value.args


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


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
    assert (out.messages, out.prompt_bytes, out.prompt_tokens, out.media) == (2, 13, None, 0)


@pytest.mark.parametrize("kind", ["chat", "completions", "responses", "embeddings"])
def test_what_is_absent_has_its_default(parser: Parser, kind: str) -> None:
    parser.parse("chat", {"model": "m", "stream": True, "n": 3, "max_tokens": 5, "messages": [user("x")]})
    out = parser.parse(kind, b"{}")
    assert (out.model, out.stream, out.n, out.best_of, out.max_tokens, out.conflict) == (
        None,
        False,
        1,
        None,
        None,
        None,
    )
    assert (out.prompt_bytes, out.prompt_tokens, out.messages, out.prompts) == (0, None, 0, 1)


def test_null_is_absent(parser: Parser) -> None:
    names = ("model", "stream", "n", "max_tokens", "max_completion_tokens", "messages", "tools")
    out = parser.parse("chat", dict.fromkeys(names))
    assert (out.model, out.stream, out.n, out.max_tokens, out.messages) == (None, False, 1, None, 0)


@pytest.mark.parametrize(
    ("kind", "given", "limit", "name"),
    [
        ("chat", {"max_tokens": 5}, 5, b"max_tokens"),
        ("chat", {"max_completion_tokens": 6}, 6, b"max_completion_tokens"),
        ("chat", {"max_tokens": 5, "max_completion_tokens": 6}, 6, b"max_completion_tokens"),
        ("chat", {"max_tokens": 5, "max_completion_tokens": None}, 5, b"max_tokens"),
        ("chat", {"max_output_tokens": 5}, None, None),
        ("completions", {"max_tokens": 0}, 0, b"max_tokens"),
        ("completions", {"max_tokens": 5.0}, 5, b"max_tokens"),
        ("completions", {"max_tokens": -1}, None, None),
        ("responses", {"max_output_tokens": 7}, 7, b"max_output_tokens"),
        ("responses", {"max_tokens": 7}, None, None),
    ],
)
def test_the_limit_is_that_of_the_member_which_the_engine_obeys(
    parser: Parser, kind: str, given: dict[str, Any], limit: int | None, name: bytes | None
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
    assert (out.max_tokens, out.conflict, out.prompt_bytes) == (5, None, 9)


def test_the_same_value_twice_is_no_conflict(parser: Parser) -> None:
    assert parser.parse("chat", b'{"n":1,"n":1,"x":1,"x":2}').conflict is None
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
    assert parser.out.body is not None
    parser.request.clear(parser.out)
    assert (parser.out.body, parser.out.p, parser.out.model) == (None, None, None)


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


@settings(max_examples=200, deadline=None)
@given(body=st.binary(max_size=100), kind=st.sampled_from(["chat", "completions", "responses", "embeddings"]))
def test_no_bytes_make_it_throw(parser: Parser, body: bytes, kind: str) -> None:
    for text in (body, b'{"model":' + body, b'{"messages":[{"content":"' + body, b'{"prompt":[1,' + body):
        try:
            parser.parse(kind, text)
        except RefusedError as refused:
            assert refused.args[0]


# What counts as text of the prompt.


@settings(max_examples=200, deadline=None)
@given(
    contents=st.lists(st.text(max_size=500 // 12).filter(lambda t: not _has_lone_surrogate(t)), max_size=6),
    ascii_only=st.booleans(),
)
def test_text_counts_by_its_size_in_utf_8_however_it_is_escaped(
    parser: Parser, contents: list[str], ascii_only: bool
) -> None:
    out = parser.parse("chat", {"messages": [user(t) for t in contents]}, ensure_ascii=ascii_only)
    assert out.prompt_bytes == sum(len(t.encode()) for t in contents)
    assert out.messages == len(contents)


def _has_lone_surrogate(text: str) -> bool:
    return any("\ud800" <= c <= "\udfff" for c in text)


@pytest.mark.parametrize(
    "text", ["中文字符。" * 4000, 'def f():\n\treturn "x"\n' * 3000, "plain " * 9000, "é😀" * 9000]
)
@pytest.mark.parametrize("messages", [1, 20])
def test_long_text_is_counted_within_two_percent(parser: Parser, text: str, messages: int) -> None:
    size = len(text) // messages
    parts = [text[k * size : (k + 1) * size] for k in range(messages)]
    out = parser.parse("chat", {"messages": [user(t) for t in parts]})
    assert out.prompt_bytes == pytest.approx(sum(len(t.encode()) for t in parts), rel=0.02)


DATA_URL = "data:image/png;base64," + "A" * 5000


@pytest.mark.parametrize(
    "part",
    [
        {"type": "image_url", "image_url": {"url": DATA_URL, "detail": "high"}},
        {"type": "input_image", "image_url": DATA_URL},
        {"type": "input_audio", "input_audio": {"data": "A" * 5000, "format": "wav"}},
        {"type": "video_url", "video_url": {"url": DATA_URL}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": DATA_URL}},
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "A" * 5000}},
    ],
)
def test_media_are_counted_apart_from_text(parser: Parser, part: dict[str, Any]) -> None:
    out = parser.parse("chat", {"messages": [user([{"type": "text", "text": "What is this?"}, part, part])]})
    assert (out.prompt_bytes, out.media) == (13, 2)


def test_a_text_that_looks_like_media_is_text(parser: Parser) -> None:
    assert parser.parse("chat", {"messages": [user(DATA_URL)]}).prompt_bytes == len(DATA_URL)


def test_tool_calls_and_their_results_are_text(parser: Parser) -> None:
    call = {"id": "call_1", "type": "function", "function": {"name": "get", "arguments": '{"a":1}'}}
    messages = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "call_1", "content": "42"},
    ]
    assert parser.parse("chat", {"messages": messages}).prompt_bytes == 3 + 7 + 2


def test_tool_definitions_count_as_the_json_that_templates_print(parser: Parser) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
    out = parser.parse("chat", {"tools": tools, "functions": [], "messages": [user("x")]})
    assert out.prompt_bytes == len(json.dumps(tools)) + 2 + 1


@pytest.mark.parametrize(
    ("prompt", "figures"),
    [
        ("Hello", (5, None, 1)),
        (["Hello", "you"], (8, None, 2)),
        ([1, 22, 333], (0, 3, 1)),
        ([0, 0, 1], (0, 3, 1)),
        ([128000], (0, 1, 1)),
        ([1234567, 7654321], (0, 2, 1)),
        ([[1, 2], [3], []], (0, 3, 3)),
        (["a", [1, 2]], (1, 2, 2)),
        ([], (0, None, 1)),
        ("", (0, None, 1)),
        (None, (0, None, 1)),
    ],
)
@pytest.mark.parametrize(("kind", "name"), [("completions", "prompt"), ("embeddings", "input")])
def test_a_prompt_may_be_text_token_ids_or_a_list_of_either(
    parser: Parser, kind: str, name: str, prompt: Any, figures: tuple[int, int | None, int]
) -> None:
    for writer in ({}, {"separators": (",", ":")}, {"indent": 1}):
        out = parser.parse(kind, {name: prompt}, **writer)
        assert (out.prompt_bytes, out.prompt_tokens, out.prompts) == figures


@settings(max_examples=100, deadline=None)
@given(ids=st.lists(st.integers(0, 10**9), max_size=50), spaces=st.booleans())
def test_every_token_id_is_counted(parser: Parser, ids: list[int], spaces: bool) -> None:
    out = parser.parse("completions", {"prompt": ids}, separators=(", ", ": ") if spaces else (",", ":"))
    assert out.prompt_tokens == (len(ids) or None)


@pytest.mark.parametrize(
    "broken", [b"[1,02]", b"[00,1]", b"[1,,2]", b"[1,2,]", b"[,1]", b"[1 2]", b"[1,-]", b"[1,2"]
)
def test_a_broken_list_of_numbers_is_refused(parser: Parser, broken: bytes) -> None:
    assert refusal(parser, "completions", b'{"prompt":' + broken + b"}")[0] == "invalid_json"


def test_the_input_of_responses_is_a_text_or_a_list_of_items(parser: Parser) -> None:
    out = parser.parse("responses", {"input": "Hello", "instructions": "Be kind."})
    assert (out.prompt_bytes, out.messages) == (13, 0)
    items = [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_image", "image_url": DATA_URL}],
        },
        {"type": "function_call_output", "call_id": "c1", "output": "42"},
    ]
    out = parser.parse("responses", {"input": items})
    assert (out.prompt_bytes, out.messages, out.media) == (4, 2, 1)


# Digests.


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
