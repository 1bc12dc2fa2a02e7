"""`core/record_json.lua`: completion records as JSON that any reader takes."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.contract.records import Completion
from tokenweir.luavm import new_runtime

RECORD = {
    "id": "r1",
    "gateway": "gw",
    "time_ms": 1_700_000_000_000,
    "model": "llama",
    "backend": "gpu-a",
    "kind": "chat",
    "outcome": "ok",
}
LUA = new_runtime()


def encode(*records: dict[str, Any]) -> bytes:
    """What Lua writes for these records."""

    def to_lua(value: Any) -> Any:
        return value.encode() if isinstance(value, str) else value

    tables = [
        LUA.table_from({key.encode(): to_lua(value) for key, value in record.items()}) for record in records
    ]
    append = LUA.require(b"tokenweir.core.record_json").append
    texts = []
    for table in tables:
        batch = LUA.require(b"string.buffer").new()
        append(batch, table)
        texts.append(batch.get(batch))
    return b"[" + b",".join(texts) + b"]"


def test_a_batch_is_read_back_as_it_was_written() -> None:
    records = [
        {**RECORD, "stream": True, "max_tokens": 256, "wait_ms": 0.125, "ttft_ms": 12.5, "finish": "stop"},
        {**RECORD, "id": "r2", "output": 7, "output_source": "usage", "priority": "high"},
    ]
    read = [Completion.model_validate(record) for record in json.loads(encode(*records))]
    assert read == [Completion.model_validate(record) for record in records]


def test_defaults_are_left_out() -> None:
    record = {**RECORD, "n": 1, "priority": "normal", "key": "", "stream": False, "predictor": "running"}
    assert json.loads(encode(record)) == [RECORD]


def test_an_empty_record_is_json() -> None:
    assert json.loads(encode({}, RECORD, {})) == [{}, RECORD, {}]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_what_is_no_finite_number_is_left_out(value: float) -> None:
    assert json.loads(encode({**RECORD, "total_ms": value})) == [RECORD]


def test_large_whole_numbers_are_exact() -> None:
    assert json.loads(encode({**RECORD, "prompt": 2**46}))[0]["prompt"] == 2**46


@given(st.text())
def test_any_text_comes_back(text: str) -> None:
    assert json.loads(encode({**RECORD, "finish": text + "!"}))[0]["finish"] == text + "!"


@given(st.binary())
def test_any_bytes_give_json(data: bytes) -> None:
    record = {**RECORD, "finish": data + b"!"}
    text = json.loads(encode(record).decode())[0]["finish"]
    try:
        assert text == (data + b"!").decode()
    except UnicodeDecodeError:
        assert len(text) == len(data) + 1


def test_names_of_members_are_the_contracts(root: Any) -> None:
    check: Callable[..., Any] = LUA.eval(
        b"function() return require('tokenweir.contract').shapes.completion end"
    )
    members = {name.decode() for name in check()[b"members"]}
    assert members == set(Completion.model_fields)
