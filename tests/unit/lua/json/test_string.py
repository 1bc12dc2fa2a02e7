"""`lua/tokenweir/core/json/string.lua`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime


@pytest.fixture(scope="module")
def strings() -> Any:
    module = new_runtime().eval(b'require("tokenweir.core.json.string")')
    return module[0] if isinstance(module, tuple) else module


@settings(max_examples=300, deadline=None)
@example(text="\ud800\udc00", ascii_only=False)
@example(text="\ud800\udc00", ascii_only=True)
@given(text=st.text(), ascii_only=st.booleans())
def test_it_decodes_what_python_writes(strings: Any, text: str, ascii_only: bool) -> None:
    written = json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode("utf-8", "surrogatepass")
    told = strings.decode(written)
    # Two lone surrogates in a row, once escaped, are one character to every parser.
    expected = json.loads(b'"' + written + b'"') if ascii_only else text
    assert told == expected.encode("utf-8", "surrogatepass")


@settings(max_examples=300, deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])))
def test_python_reads_what_it_encodes(strings: Any, text: str) -> None:
    written = strings.encode(text.encode())
    assert json.loads(written) == text
    assert not any(byte < 32 or byte == 127 for byte in written)


@pytest.mark.parametrize(
    ("written", "what", "at"),
    [
        (b"a\\", "invalid escape", 1),
        (b"\\x", "invalid escape", 0),
        (b"ab\\u12", "invalid \\u escape", 2),
        (b"\\u12g4", "invalid \\u escape", 0),
        (b"a\nb", "control character in a string", 1),
        (b"\\n\x00", "control character in a string", 2),
    ],
)
def test_a_broken_string_is_refused_with_the_offset(strings: Any, written: bytes, what: str, at: int) -> None:
    assert strings.decode(written) == (None, what.encode(), at)


@settings(max_examples=200, deadline=None)
@given(written=st.binary(max_size=40))
def test_no_bytes_make_it_throw(strings: Any, written: bytes) -> None:
    strings.decode(written)
    strings.decode(written + b"\\u")
