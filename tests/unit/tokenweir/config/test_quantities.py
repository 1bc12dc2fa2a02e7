"""Sizes and times as people write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.config.quantities import parse_bytes, parse_ms, written


@pytest.mark.parametrize(
    ("text", "ms"),
    [("30s", 30_000), ("1.5 s", 1500), ("10m", 600_000), ("2h", 7_200_000), ("250ms", 250), (20, 20_000)],
)
def test_a_time_is_seconds_unless_a_unit_says_otherwise(text: object, ms: int) -> None:
    assert parse_ms(text) == ms


@pytest.mark.parametrize(
    ("text", "size"),
    [("4MiB", 4 * 2**20), ("64k", 65_536), ("1MB", 10**6), ("2 GiB", 2 * 2**30), (100, 100), ("10b", 10)],
)
def test_a_size_is_bytes_unless_a_unit_says_otherwise(text: object, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize("text", ["", "lots", "5 apples", "-1s", "1e3", True])
def test_what_is_no_quantity_is_refused_with_an_example(text: object) -> None:
    with pytest.raises(ValueError, match="30s"):
        parse_ms(text)


@given(st.integers(min_value=1, max_value=10**9))
def test_what_is_shown_can_be_written_again(value: int) -> None:
    assert parse_ms(written("time", value)) == value
    assert parse_bytes(written("size", value)) == value
