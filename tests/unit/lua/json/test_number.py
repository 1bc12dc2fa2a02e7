"""`lua/tokenweir/core/json/number.lua`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()
VALUE = RUNTIME.eval(
    b"""function(text)
      local bytes, number = require "tokenweir.core.bytes", require "tokenweir.core.json.number"
      local value = number.value(bytes.of(text), 0, #text - 1)
      assert(text)
      return value
    end"""
)


def value(text: str) -> Any:
    return VALUE(f"{text},".encode())


@pytest.mark.parametrize(
    "text",
    [
        "0",
        "256",
        "123456789",
        "1234567890",
        "12345678901234567890",
        "0.7",
        "0.70",
        "1.0",
        "0.1234567",
        "12345.678",
        "0.30000000000000004",
        "-1",
        "-0.5",
        "1e3",
        "1.5e3",
        "2E-2",
        "1e999",
    ],
)
def test_a_number_is_what_python_reads(text: str) -> None:
    assert value(text) == float(text)


@given(st.integers(0, 10**6), st.text("0123456789", max_size=9))
def test_a_short_number_is_rounded_as_a_long_one(whole: int, decimals: str) -> None:
    text = f"{whole}.{decimals}" if decimals else f"{whole}"
    assert value(text) == float(text)
