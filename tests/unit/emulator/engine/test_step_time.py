"""Many decoding steps at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emulator.engine.step_time import Pace
from tests.unit.emulator.engine.engines import REAL


@given(st.integers(1, 300), st.integers(1, 256), st.integers(0, 100_000))
def test_a_jump_takes_as_long_as_its_steps(count: int, sequences: int, kv: int) -> None:
    pace = Pace(REAL)
    one_by_one = sum(pace.step(sequences, sequences, kv + sequences * i, 0) for i in range(1, count + 1))
    assert pace.decoding(count, sequences, kv) == pytest.approx(one_by_one)


@given(st.floats(0, 1e5), st.integers(1, 256), st.integers(0, 100_000), st.integers(1, 5_000))
def test_the_steps_within_a_span_are_the_most_that_end_in_it(
    span: float, sequences: int, kv: int, most: int
) -> None:
    pace = Pace(REAL)
    count = pace.decoding_steps(span, sequences, kv, most)
    assert 0 <= count <= most
    assert pace.decoding(count, sequences, kv) <= span + 1e-3
    assert count == most or pace.decoding(count + 1, sequences, kv) > span - 1e-3


def test_advancing_to_the_reckoned_end_of_a_jump_does_all_of_it() -> None:
    pace = Pace(REAL)
    for count in range(1, 200):
        for start in (0.0, 123_456.789, 9e8):
            end = start + pace.decoding(count, 7, 3_000)
            assert pace.decoding_steps(end - start, 7, 3_000, count) == count
