"""`lua/tokenweir/core/queue/hint.lua`: when a waiter is told anew where it stands."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.queue.queues import LUA

HINT = LUA.eval(b'require "tokenweir.core.queue.hint"')


def hints(looks: list[tuple[float, int]], most: int = 4) -> list[tuple[float, int]]:
    """Those of (time, position) at which it is told."""
    told = LUA.table_from({b"count": 0, b"at": 0})
    given_at = []
    for now, position in looks:
        if HINT.is_due(told, position, now, most):
            HINT.note(told, position, now)
            given_at.append((now, position))
    return given_at


def test_at_once_and_then_when_the_position_has_halved() -> None:
    looks = [(1000.0, 40), (3000.0, 21), (4000.0, 20), (6000.0, 11), (7000.0, 9)]
    assert hints(looks) == [(1000.0, 40), (4000.0, 20), (7000.0, 9)]


def test_not_more_often_than_once_a_second() -> None:
    assert hints([(1000.0, 40), (1500.0, 5), (2000.0, 5)]) == [(1000.0, 40), (2000.0, 5)]


def test_never_where_none_are_allowed() -> None:
    assert hints([(1000.0, 40), (9000.0, 1)], most=0) == []


@given(st.lists(st.tuples(st.floats(0, 5000), st.integers(1, 10_000)), max_size=60))
def test_four_times_at_most(steps: list[tuple[float, int]]) -> None:
    now, looks = 0.0, []
    for passed, position in steps:
        now += passed
        looks.append((now, position))
    assert len(hints(looks)) <= 4
