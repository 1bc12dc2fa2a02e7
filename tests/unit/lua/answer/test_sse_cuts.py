"""A stream is counted alike however it is cut into chunks, and whatever stands in it."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.lua.answer.streams import CHAT, Counter, chat, event

deltas = st.one_of(
    st.text(max_size=6).map(lambda t: {"content": t}),
    st.sampled_from(
        [
            {"role": "assistant", "content": ""},
            {},
            {"reasoning_content": "r"},
            {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]},
        ]
    ),
)


@st.composite
def streams(draw: st.DrawFn) -> bytes:
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    pieces = []
    for delta in draw(st.lists(deltas, max_size=8)):
        data = chat(delta, finish=draw(st.sampled_from([None, None, None, "stop"])))
        if draw(st.booleans()):
            data["usage"] = {"prompt_tokens": 3, "completion_tokens": draw(st.integers(0, 9))}
        text = json.dumps(
            data, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, None, 0]))
        )
        lines = [f"data: {line}" for line in text.split("\n")]
        if draw(st.booleans()):
            lines.insert(
                0, draw(st.sampled_from([": comment", "event: message", "id: 1", "event: error", "data"]))
            )
        pieces.append(end.join(lines) + end + end)
    pieces.append(draw(st.sampled_from(["", "data: [DONE]", f"data: [DONE]{end}{end}", f"data: {{{end}"])))
    return "".join(pieces).encode()


@settings(max_examples=150, deadline=None)
@given(stream=streams(), data=st.data())
def test_the_figures_are_the_same_under_any_cut_into_chunks(
    counter: Counter, stream: bytes, data: st.DataObject
) -> None:
    whole = counter.count([stream])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    bounds = [0, *cuts, len(stream)]
    assert counter.count(stream[a:b] for a, b in pairwise(bounds)) == whole
    assert counter.count(stream[k : k + 1] for k in range(len(stream))) == whole


def test_the_figures_are_the_same_when_cut_in_two_at_each_byte(counter: Counter) -> None:
    for stream in (CHAT, CHAT.replace(b"\n", b"\r\n"), CHAT.replace(b"\n", b"\r")):
        whole = counter.count([stream])
        assert whole["events"] == 3
        for at in range(len(stream) + 1):
            assert counter.count([stream[:at], stream[at:]]) == whole


@settings(max_examples=150, deadline=None)
@given(
    contents=st.lists(st.text(max_size=8), max_size=30), writer=st.sampled_from([{}, {"ensure_ascii": False}])
)
def test_exactly_the_events_with_content_are_counted(
    counter: Counter, contents: list[str], writer: dict[str, Any]
) -> None:
    told = counter.count(event(chat({"content": text}), **writer) for text in contents)
    assert told["events"] == sum(1 for text in contents if text)
    assert told["data_events"] == len(contents)


@settings(max_examples=200, deadline=None)
@given(noise=st.lists(st.binary(max_size=60), max_size=6))
def test_no_bytes_make_it_throw(counter: Counter, noise: list[bytes]) -> None:
    counter.count([event(chat({"content": "a"})), *noise, event(chat({"content": "b"}))[:-5], b'"'])
