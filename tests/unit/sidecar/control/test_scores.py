"""The article's dynamic weight."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.control.scores import scores


@pytest.mark.parametrize(
    ("memory", "low", "high"), [(0.0, 120, 30), (0.43, 68.4, 17.1), (0.9, 12, 3), (1.0, 0, 0)]
)
def test_free_percent_times_1_2_and_0_3(memory, low, high):
    assert scores(memory) == (pytest.approx(low), pytest.approx(high))


@given(st.floats(0, 1), st.floats(0, 1))
def test_more_free_memory_never_scores_less(one, other):
    emptier, fuller = sorted((one, other))
    assert scores(emptier) >= scores(fuller)
