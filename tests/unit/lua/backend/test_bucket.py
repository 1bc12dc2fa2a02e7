"""`lua/tokenweir/core/backend/bucket.lua`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

BUCKET = new_runtime().eval(b'require "tokenweir.core.backend.bucket"')


def test_upper_ends_double_from_eight(require: Callable[[str], Any]) -> None:
    bucket = require("tokenweir.core.backend.bucket")
    assert [bucket.upper[b] for b in range(bucket.COUNT)] == [8 * 2**b for b in range(13)]


@pytest.mark.parametrize(
    ("remaining", "expected"),
    [(0, 0), (8, 0), (9, 1), (16, 1), (17, 2), (32768, 12), (32769, 12), (10**9, 12)],
)
def test_a_bucket_holds_what_is_above_the_one_below_and_up_to_its_own_end(
    require: Callable[[str], Any], remaining: int, expected: int
) -> None:
    assert require("tokenweir.core.backend.bucket").of(remaining) == expected


@given(remaining=st.integers(0, 10**7), start=st.integers(0, 12))
def test_the_bucket_is_the_same_wherever_the_search_starts(remaining: int, start: int) -> None:
    assert BUCKET.of(remaining, start) == BUCKET.of(remaining)
