"""`lua/tokenweir/core/json/splice.lua`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime


class Splicer:
    """A parsed body and the edits made to it."""

    def __init__(self) -> None:
        self.runtime = new_runtime()
        for name in ("body.request", "json.splice"):
            module = self.runtime.eval(f'require("tokenweir.core.{name}")'.encode())
            setattr(self, name.split(".")[1], module[0] if isinstance(module, tuple) else module)
        self.out = self.runtime.table()

    def apply(self, body: bytes, *edits: Any) -> Any:
        return self.splice.apply(body, self.runtime.table(*edits))

    def edit(self, body: bytes, *calls: tuple[str, ...]) -> bytes:
        ok, *_ = self.request.parse(b"chat", body, self.out)
        assert ok
        edits = self.runtime.table()
        for function, *arguments in calls:
            self.splice[function.encode()](edits, self.out, *(a.encode() for a in arguments))
        return self.splice.apply(body, edits)


@pytest.fixture(scope="module")
def splicer() -> Splicer:
    return Splicer()


@st.composite
def edited_bodies(draw: st.DrawFn) -> tuple[bytes, list[tuple[int, int, bytes]]]:
    """A body and edits that do not overlap, as 0-based half-open spans, in any order."""
    body = draw(st.binary(max_size=60))
    bounds = sorted(draw(st.lists(st.integers(0, len(body)), max_size=8, unique=True)))
    spans = list(zip(bounds[::2], bounds[1::2], strict=False))
    edits = [(a, b, draw(st.binary(max_size=5))) for a, b in spans]
    return body, draw(st.permutations(edits))


@settings(max_examples=200, deadline=None)
@given(case=edited_bodies())
def test_every_byte_outside_the_edits_stays(
    splicer: Splicer, case: tuple[bytes, list[tuple[int, int, bytes]]]
) -> None:
    body, edits = case
    expected = body
    for first, last, text in sorted(edits, reverse=True):
        expected = expected[:first] + text + expected[last:]
    flat = [value for first, last, text in edits for value in (first + 1, last, text)]
    assert splicer.apply(body, *flat) == expected


@pytest.mark.parametrize(
    "edits", [(1, 3, b"x", 3, 4, b"y"), (0, 1, b""), (3, 1, b""), (5, 7, b""), (8, 7, b"")]
)
def test_edits_that_overlap_or_lie_outside_are_refused(splicer: Splicer, edits: tuple[Any, ...]) -> None:
    assert splicer.apply(b"012345", *edits) == (None, b"edits overlap or lie outside the body")


def test_text_can_be_inserted_at_both_ends(splicer: Splicer) -> None:
    assert splicer.apply(b"mid", 1, 0, b"<", 4, 3, b">") == b"<mid>"
    assert splicer.apply(b"") == b""


def test_bodies_of_megabytes_are_spliced(splicer: Splicer) -> None:
    body = b'{"model":"m","x":"' + b"y" * 3_000_000 + b'"}'
    assert splicer.edit(body, ("set_member", "model", '"other"')) == body.replace(b'"m"', b'"other"', 1)


def test_a_member_is_replaced_where_it_stands(splicer: Splicer) -> None:
    body = b'{ "stop":[], "max_tokens" : 900 ,"seed":9007199254740993}'
    assert splicer.edit(body, ("set_member", "max_tokens", "256")) == body.replace(b"900", b"256", 1)


def test_every_occurrence_of_a_member_is_replaced(splicer: Splicer) -> None:
    body = rb'{"model":"a","mod\u0065l":"b","model":"c"}'
    assert (
        splicer.edit(body, ("set_member", "model", '"x"')) == rb'{"model":"x","mod\u0065l":"x","model":"x"}'
    )


@pytest.mark.parametrize(
    ("body", "changed"),
    [
        (b"{}", b'{"model":"x"}'),
        (b" { } ", b' {"model":"x" } '),
        (b'{"n":1}', b'{"n":1,"model":"x"}'),
        (b'{"n": 1 \n}', b'{"n": 1,"model":"x" \n}'),
        (b'\xef\xbb\xbf{"n":[]}', b'\xef\xbb\xbf{"n":[],"model":"x"}'),
    ],
)
def test_an_absent_member_is_inserted(splicer: Splicer, body: bytes, changed: bytes) -> None:
    body = body.replace(b'"n":[]', b'"stop":[]')
    assert splicer.edit(body, ("set_member", "model", '"x"')) == changed.replace(b'"n":[]', b'"stop":[]')


def test_several_absent_members_are_inserted_together(splicer: Splicer) -> None:
    calls = (("set_member", "model", '"x"'), ("set_member", "n", "2"), ("set_member", "stream", "true"))
    assert json.loads(splicer.edit(b'{"seed":1}', *calls)) == {
        "seed": 1,
        "model": "x",
        "n": 2,
        "stream": True,
    }


def test_several_members_are_inserted_into_an_empty_object(splicer: Splicer) -> None:
    calls = (("set_member", "model", '"x"'), ("set_member", "n", "2"))
    assert json.loads(splicer.edit(b"{}", *calls)) == {"model": "x", "n": 2}


def test_members_given_twice_are_made_to_agree_with_the_one_that_was_read(splicer: Splicer) -> None:
    body = b'{"model":"a","n":1,"x":1,"model":"bb","x":2,"n":22}'
    assert splicer.edit(body, ("agree",)) == b'{"model":"bb","n":22,"x":1,"model":"bb","x":2,"n":22}'


def test_agreeing_leaves_alone_what_was_set_already(splicer: Splicer) -> None:
    body = b'{"model":"a","n":1,"model":"b","n":2}'
    changed = splicer.edit(body, ("set_member", "model", '"x"'), ("agree",))
    assert changed == b'{"model":"x","n":2,"model":"x","n":2}'


names = st.sampled_from(["model", "n", "stop", "seed", "messages"])
values = st.one_of(st.integers(1, 9), st.text(max_size=5), st.lists(st.integers(), max_size=3))


@settings(max_examples=150, deadline=None)
@given(
    others=st.dictionaries(st.sampled_from(["stop", "seed", "user", "a b", 'q"']), values),
    value=st.text(max_size=9),
)
def test_setting_a_member_changes_nothing_else(splicer: Splicer, others: dict[str, Any], value: str) -> None:
    for document in (others, {**others, "model": "old"}, {"model": "old", **others}):
        for writer in ({}, {"indent": 1}, {"separators": (",", ":")}):
            body = json.dumps(document, **writer).encode()
            text = json.dumps(value)
            changed = splicer.edit(body, ("set_member", "model", text))
            assert json.loads(changed) == {**document, "model": value}
