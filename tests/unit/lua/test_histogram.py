"""Values fall into the bucket of the first upper bound that they do not exceed."""

from __future__ import annotations

from bisect import bisect_left
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

BOUNDS = (
    (0.001, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60),
    (0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600),
    (1.0,),
    tuple(float(k) for k in range(15)),
)
lua: Any = new_runtime()
histogram: Any = lua.require(b"tokenweir.core.histogram")


@pytest.mark.parametrize("bounds", BOUNDS)
def test_a_bound_belongs_to_its_own_bucket(bounds: tuple[float, ...]) -> None:
    upper = histogram.bounds(lua.table_from(bounds))
    assert [histogram.bucket(upper, value) for value in bounds] == list(range(len(bounds)))
    assert histogram.bucket(upper, bounds[-1] + 1) == len(bounds)


@given(st.sampled_from(BOUNDS), st.floats(0, 1000))
def test_every_value_is_counted_below_its_bound(bounds: tuple[float, ...], value: float) -> None:
    upper = histogram.bounds(lua.table_from(bounds))
    assert histogram.bucket(upper, value) == bisect_left(bounds, value)
