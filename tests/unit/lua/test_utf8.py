"""`lua/tokenweir/core/utf8.lua` agrees with Python on what is UTF-8."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

is_valid: Any = new_runtime().eval(b'require("tokenweir.core.utf8").is_valid')


def python_says(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


@given(st.text())
def test_all_that_is_encoded_is_valid(text: str) -> None:
    assert is_valid(text.encode(errors="surrogatepass")) == python_says(text.encode(errors="surrogatepass"))


@given(st.binary(max_size=6))
def test_any_bytes_are_judged_as_python_judges_them(text: bytes) -> None:
    assert is_valid(text) == python_says(text)


@pytest.mark.parametrize(
    "text",
    [
        b"\x80",
        b"\xc1\xbf",
        b"\xc3",
        b"\xe0\x9f\xbf",
        b"\xed\xa0\x80",
        b"\xf0\x8f\xbf\xbf",
        b"\xf4\x90\x80\x80",
    ],
    ids=[
        "continuation alone",
        "overlong 2",
        "cut",
        "overlong 3",
        "surrogate",
        "overlong 4",
        "beyond Unicode",
    ],
)
def test_what_a_reader_of_json_would_refuse_is_not_valid(text: bytes) -> None:
    assert not is_valid(b"a" + text)
