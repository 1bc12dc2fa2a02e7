"""`lua/tokenweir/core/prediction/history.lua`."""

from __future__ import annotations

import statistics
from typing import Any

import pytest


@pytest.fixture
def history(require: Any) -> Any:
    return require("tokenweir.core.prediction.history")


def test_a_key_that_nobody_added_is_not_found(history: Any) -> None:
    assert history.find(history.new(4, 100), 7) is None


def test_the_first_figures_are_plain_mean_and_variance(history: Any) -> None:
    table, values = history.new(4, 100), [1.0, 2.0, 4.0, 8.0]
    for now, value in enumerate(values):
        history.add(history.touch(table, 7, now), 100, value)
    row = history.find(table, 7)
    assert row.count == len(values)
    assert row.mean == pytest.approx(statistics.mean(values), rel=1e-6)
    assert row.variance == pytest.approx(statistics.pvariance(values), rel=1e-6)
    assert row.last == 8


def test_old_values_are_forgotten(history: Any) -> None:
    table = history.new(1, 20)
    for now in range(400):
        history.add(history.touch(table, 7, now), 20, 1.0 if now < 200 else 5.0)
    assert history.find(table, 7).mean == pytest.approx(5, abs=0.01)


def test_in_a_full_set_the_one_unused_for_longest_gives_way(history: Any) -> None:
    table = history.new(1, 100)
    for now, key in enumerate((1, 2, 3, 4, 1, 5)):
        history.add(history.touch(table, key, now + 1), 100, float(key))
    assert history.find(table, 2) is None
    assert [history.find(table, key).mean for key in (1, 3, 4, 5)] == [1, 3, 4, 5]


def test_a_table_never_holds_more_than_its_rows(history: Any) -> None:
    table = history.new(8, 100)
    for key in range(1, 2000):
        history.touch(table, key, key)
    assert sum(history.find(table, key) is not None for key in range(1, 2000)) == table.size == 32


def test_a_row_that_took_another_place_knows_nothing_of_it(history: Any) -> None:
    table = history.new(1, 100)
    for now in range(5):
        row = history.touch(table, now + 1, now + 1)
        assert (row.count, row.mean, row.actual, row.q90_shift) == (0, 0, 0, 0)
        history.add(row, 100, 9.0)
        history.compare(row, 100, 10, 20)


def test_a_row_is_drawn_towards_its_parent_as_far_as_it_is_young(history: Any) -> None:
    table = history.new(1, 100)
    assert history.shrunk(None, 3, 6) == 3
    row = history.touch(table, 7, 1)
    for _ in range(6):
        history.add(row, 100, 5.0)
    assert history.shrunk(row, 3, 6) == pytest.approx(4)
