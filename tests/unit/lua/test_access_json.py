"""What the access log tells of a request is JSON, whatever the request was."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from tokenweir.luavm import new_runtime

lua: Any = new_runtime()
line_of: Any = lua.execute(b"""
    local buffer = require("string.buffer").new()
    local bytes, ffi = require "tokenweir.core.bytes", require "ffi"
    return function(record, id, ...)
      buffer:reset()
      local at = ffi.new("const uint8_t *[1]", bytes.of(id))
      require("tokenweir.core.access_json").write(buffer, record, at, #id, ...)
      return buffer:tostring()
    end
""")


FIGURES = ("predicted", "output", "prompt", "prompt_estimate", "wait_ms", "ttft_ms")


def _read(record: dict[bytes, Any], outcome: bytes, *figures: int | None) -> dict[str, Any]:
    members = line_of(lua.table_from(record), b"request-1", outcome, *figures)
    read: dict[str, Any] = json.loads(b"{" + members + b"}")
    return read


def test_a_served_request_is_told_with_its_figures() -> None:
    record = {
        b"kind": b"chat",
        b"pool": lua.table_from({b"json": b'"m\\"1"'}),
        b"key": lua.table_from({b"json": b'"team"'}),
        b"backend": b"gpu-a",
        b"mean": 99.2,
        b"prompt": 470.5,
        b"n": 2,
        b"arrived": 1000.5,
        b"first_byte": 1020.9,
        b"wait_ms": 3.9,
        b"tries": 1,
    }
    assert _read(record, b"ok", 40, 500) == {
        "kind": "chat",
        "model": 'm"1',
        "key": "team",
        "backend": "gpu-a",
        "outcome": "ok",
        "predicted": 199,
        "output": 40,
        "prompt": 500,
        "prompt_estimate": 470,
        "wait_ms": 3,
        "ttft_ms": 20,
        "tries": 1,
        "id": "request-1",
    }


def test_a_request_that_was_refused_before_it_was_read_has_no_figures() -> None:
    told = _read({}, b"")
    assert told["id"] == "request-1"
    assert (told["kind"], told["model"], told["key"], told["backend"], told["outcome"]) == ("",) * 5
    assert [told[name] for name in FIGURES] == [None] * 6
    assert told["tries"] == 0


def test_counts_beyond_32_bits_are_bounded() -> None:
    assert _read({b"wait_ms": 1e12, b"mean": 1e12, b"n": 1}, b"ok", 10**12, 1)["output"] == 2**31 - 1


def test_the_operations_page_describes_every_member(root: Path) -> None:
    section = (
        (root / "docs/operations.md").read_text().partition("## The access log")[2].partition("\n## ")[0]
    )
    cells = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    listed = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
    template = (root / "nginx/nginx.conf.j2").read_text()
    formats = re.findall(r"macro log_of.*?endmacro", template, re.DOTALL)
    written = [
        *re.findall(r'"(\w+)":', formats[0]),
        *_read({b"shadow": b"gpu-b", b"code": b"overloaded"}, b""),
    ]
    assert sorted(listed) == sorted(written)


def test_the_choice_of_a_shadow_policy_is_told_where_there_is_one() -> None:
    assert _read({b"shadow": b"gpu-b"}, b"ok")["shadow"] == "gpu-b"
    assert "shadow" not in _read({}, b"ok")


def test_an_error_of_the_gateway_s_own_is_told_by_its_code() -> None:
    assert _read({b"code": b"overloaded"}, b"refused")["code"] == "overloaded"
    assert "code" not in _read({}, b"ok")


def test_a_model_that_is_not_there_is_told_as_it_was_asked_for() -> None:
    assert _read({b"asked": b'"gpt-5"', b"code": b"model_not_found"}, b"refused")["model"] == "gpt-5"
