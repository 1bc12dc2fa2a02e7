"""`lua/tokenweir/core/queue/line.lua`: a list that is always in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.queue.queues import LUA

LINE = LUA.eval(b'require "tokenweir.core.queue.line"')

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("insert"), st.integers(0, 20)), st.tuples(st.just("remove"), st.integers(0, 99))
    ),
    max_size=120,
)


@given(STEPS)
def test_items_stand_by_their_keys_and_equals_as_they_came(steps: list[tuple[str, int]]) -> None:
    line = LINE.new()
    expected: list[tuple[int, int]] = []
    items = {}
    for number, (what, value) in enumerate(steps):
        if what == "insert":
            items[number] = LUA.table_from({b"number": number})
            LINE.insert(line, value, items[number], number)
            expected.append((value, number))
            expected.sort()
        elif expected:
            key, gone = expected.pop(value % len(expected))
            assert LINE.remove(line, key, items[gone]) is True
            assert LINE.remove(line, key, items[gone]) is False
        assert line.size == len(expected)
        for place, (key, who) in enumerate(expected):
            item, there = LINE.at(line, place + 1)
            assert (item[b"number"], there) == (who, key)
        assert LINE.at(line, len(expected) + 1) is None
        for key in {key for key, _ in expected}:
            smaller = [who for other, who in expected if other < key]
            assert LINE.before(line, key) == (len(smaller), sum(smaller))


def test_ten_thousand_waiters_take_little_memory_and_give_it_back() -> None:
    line = LINE.new()
    items = [LUA.table() for _ in range(10_000)]
    for key, item in enumerate(items):
        LINE.insert(line, key, item, 1)
    assert line.room <= 16_384
    for key, item in enumerate(items):
        LINE.remove(line, key, item)
    assert line.room == 16
