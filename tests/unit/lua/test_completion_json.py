"""`lua/tokenweir/core/completion_json.lua`: what it writes is a completion record of the contract."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tokenweir.contract.records import Completion
from tokenweir.luavm import new_runtime

lua: Any = new_runtime()
write: Any = lua.execute(b"""
    local buffer = require("string.buffer").new()
    local bytes, ffi = require "tokenweir.core.bytes", require "ffi"
    return function(r, id, ...)
      buffer:reset()
      local at = ffi.new("const uint8_t *[1]", bytes.of(id))
      require("tokenweir.core.completion_json").write(buffer, r, at, #id, ...)
      return buffer:tostring()
    end
""")

PLAIN: dict[str, Any] = {
    "kind": "chat",
    "priority": "normal",
    "backend": "gpu-a",
    "stream": False,
    "n": 1,
    "prompt_bytes": 400,
    "prompt": 99.2,
    "mean": 120.4,
    "median": 80,
    "q90": 300,
    "wait_ms": 0,
    "arrived": 1000.5,
    "policy": "predictive",
}


def record(
    told: tuple[Any, ...] = (200, "ok", None, "none", None, None), now: float = 1500.0, **more: Any
) -> Completion:
    """What is written of a request, as the sidecar reads it."""
    members = {**PLAIN, **more}
    table = lua.table_from(
        {
            key.encode(): lua.table_from({k.encode(): v for k, v in value.items()})
            if isinstance(value, dict)
            else value.encode()
            if isinstance(value, str)
            else value
            for key, value in {"pool": {"json": b'"m"'}, **members}.items()
        }
    )
    figures = [value.encode() if isinstance(value, str) else value for value in told]
    text = b"{" + write(table, b"request-1", *figures, now) + b"}"
    return Completion.model_validate({**json.loads(text), "gateway": "gw", "time_ms": 1})


def test_a_plain_answer_is_told_with_its_usage() -> None:
    read = record((200, "ok", 40, "usage", 101, 64), first_byte=1250.5)
    assert (read.output, read.output_source, read.prompt, read.cached) == (40, "usage", 101, 64)
    assert (read.prompt_estimate, read.mean, read.ttft_ms, read.total_ms) == (100, 121, 250, 500)
    assert (read.events, read.finish, read.stream, read.max_tokens) == (0, "", False, None)


def test_a_stream_is_told_with_its_events_and_why_it_ended() -> None:
    stream = {"events": 7, "finish_reason": b"length"}
    read = record(
        (200, "ok", 7, "events", None, None), stream=True, sse=stream, first_byte=1010, first_token=1100.5
    )
    assert (read.stream, read.events, read.finish, read.output_source) == (True, 7, "length", "events")
    assert read.ttft_ms == 100, "from the first content, not from the first byte"


def test_what_is_not_known_is_null_and_never_an_invented_number() -> None:
    read = record((499, "client_gone", None, "none", None, None))
    assert (read.output, read.prompt, read.cached, read.ttft_ms) == (None,) * 4
    assert (read.key, read.shadow, read.error, read.degraded, read.predictor) == ("", "", "", "", "running")


def test_a_degraded_request_and_an_engine_out_of_memory_are_told() -> None:
    read = record((500, "upstream_error", None, "none", None, None), engine_error="out_of_memory", burst=256)
    assert read.error == "out_of_memory"
    assert "burst" in read.degraded


@pytest.mark.parametrize("figure", [-5.0, 1e12, float("inf")])
def test_figures_beyond_their_range_are_bounded(figure: float) -> None:
    read = record(
        (200, "ok", figure, "usage", figure, figure), mean=figure, wait_ms=figure, max_tokens=figure
    )
    assert read.output is not None
    assert 0 <= read.output <= 2**31 - 1
