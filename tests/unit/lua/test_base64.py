"""`lua/tokenweir/core/base64.lua`."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.readers import CORE

BASE64 = CORE.require("tokenweir.core.base64")


@given(st.binary(max_size=300))
def test_it_reads_and_writes_what_python_does(raw: bytes) -> None:
    text = base64.b64encode(raw)
    assert BASE64.decode(text) == raw
    assert BASE64.encode(raw) == text


@pytest.mark.parametrize("text", [b"abc", b"ab=c", b"====", b"a===", b"ab\ncd===", b"ab-_", b"ab==cdef"])
def test_damaged_text_is_refused(text: bytes) -> None:
    found: Any = BASE64.decode(text)
    assert found[0] is None
    assert b"base64" in found[1]
