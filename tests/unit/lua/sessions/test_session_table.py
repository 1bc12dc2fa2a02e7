"""`lua/tokenweir/core/sessions/session_table.lua`: where sessions are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.sessions.sessions import halves

MINUTE = 60_000.0
NOW = 1_000_000.0


class Table:
    """A table, with sessions given by number."""

    def __init__(self, lua: Any) -> None:
        module = lua.eval(b'require "tokenweir.core.sessions.session_table"')
        self.module = module[0] if isinstance(module, tuple) else module
        self.sets = self.module.new()

    def find(self, number: int) -> Any:
        return self.module.find(self.sets, *halves(number))

    def serve(self, number: int, place: int, now: float = NOW) -> Any:
        entry = self.module.obtain(self.sets, *halves(number), now)
        self.module.serve(entry, place)
        return entry


@pytest.fixture
def table(lua: Any) -> Table:
    """An empty table."""
    return Table(lua)


def places(entry: Any) -> list[int]:
    return [entry.place[0], entry.place[1]]


def test_a_session_is_found_once_it_was_served(table: Table) -> None:
    assert table.find(1) is None
    table.serve(1, 7)
    assert places(table.find(1)) == [7, -1]
    assert table.find(2) is None


def test_the_last_two_backends_are_remembered(table: Table) -> None:
    for place in (7, 3, 3, 5):
        table.serve(1, place)
    assert places(table.find(1)) == [5, 3]
    table.serve(1, 3)
    assert places(table.find(1)) == [3, 5]


def test_what_a_backend_has_stays_with_it(table: Table) -> None:
    entry = table.serve(1, 7)
    table.module.serve(entry, 3)
    assert table.module.which(entry, 7) == 1
    assert table.module.which(entry, 3) == 0
    assert table.module.which(entry, 4) == -1


def test_a_full_set_forgets_who_was_served_longest_ago(table: Table) -> None:
    for number in range(400_000):
        table.serve(number, 1, NOW + 10 * number)
    late = sum(table.find(number) is not None for number in range(350_000, 400_000))
    early = sum(table.find(number) is not None for number in range(50_000))
    assert late > 49_000
    assert early < 25_000


def test_a_hundred_thousand_sessions_fit(table: Table) -> None:
    for number in range(100_000):
        table.serve(number, number % 8)
    lost = sum(table.find(number) is None for number in range(100_000))
    assert lost < 2000
    assert table.module.count(table.sets, NOW) == (100_000 - lost, 0)
