"""`lua/tokenweir/core/sessions/prefix_table.lua`: which backends have which beginnings of prompts."""

from __future__ import annotations

from typing import Any

import pytest

from tokenweir.luavm import new_runtime


class Table:
    """One table."""

    def __init__(self) -> None:
        lua = new_runtime()
        self._note, self._find = lua.execute(b"""
            local prefix_table = require "tokenweir.core.sessions.prefix_table"
            local sets = require("ffi").new("tw_prefix_set[?]", prefix_table.SETS)
            local function hash(high, low)
              return 4294967296ULL * high + low
            end
            return function(high, low, seed, place, stamp, now)
              prefix_table.note(sets, hash(high, low), seed, place, stamp, now)
            end, function(high, low, seed)
              local found = prefix_table.find(sets, hash(high, low), seed)
              if found < 0 then
                return nil
              end
              local known, list = prefix_table.at(sets, found), {}
              for k = 0, prefix_table.PLACES - 1 do
                if known.place[k] >= 0 then
                  list[known.place[k]] = known.stamp[k]
                end
              end
              return list
            end
        """)

    def note(
        self, high: int, place: int, *, low: int = 5, seed: int = 0, stamp: int = 1, now: int = 0
    ) -> None:
        """A backend uses a beginning now; `low` chooses the set."""
        self._note(high, low, seed, place, stamp, now)

    def places(self, high: int, *, low: int = 5, seed: int = 0) -> dict[int, int] | None:
        """Backend -> the stamp of its last use; None where the beginning is not known."""
        found: Any = self._find(high, low, seed)
        return None if found is None else {int(k): int(v) for k, v in found.items()}


@pytest.fixture
def table() -> Table:
    return Table()


def test_a_beginning_is_known_with_those_who_used_it_and_when(table: Table) -> None:
    assert table.places(1) is None
    table.note(1, place=3, stamp=10)
    table.note(1, place=0, stamp=20)
    table.note(1, place=3, stamp=30)
    assert table.places(1) == {3: 30, 0: 20}
    assert table.places(2) is None


def test_the_same_beginning_of_another_model_is_another_one(table: Table) -> None:
    table.note(1, place=3, seed=7)
    assert table.places(1, seed=8) is None
    assert table.places(1, seed=7) == {3: 1}


def test_a_full_set_forgets_what_was_asked_for_longest_ago(table: Table) -> None:
    for high in range(1, 9):
        table.note(high, place=high, now=1000 * high)
    table.note(1, place=1, now=20_000)
    table.note(9, place=9, now=21_000)
    assert table.places(2) is None
    assert all(table.places(high) is not None for high in (1, 3, 4, 5, 6, 7, 8, 9))


def test_of_more_than_eight_backends_one_makes_room(table: Table) -> None:
    for place in range(9):
        table.note(1, place=place, stamp=place)
    found = table.places(1)
    assert found is not None
    assert len(found) == 8
    assert found[8] == 8
