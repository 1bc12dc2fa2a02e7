"""Which rows a model is judged by."""

from __future__ import annotations

import numpy as np
import pytest

from model.core import Words
from model.dataset import Dataset
from model.training_run import split


def rows(groups: list[int]) -> Dataset:
    n = len(groups)
    return Dataset(
        np.zeros((n, 1), np.float32),
        Words(np.zeros(0, np.uint16), np.zeros(n, np.int32)),
        np.ones(n),
        np.zeros(n, np.uint8),
        np.full(n, -1.0),
        np.array(["m"] * n),
        np.array(groups),
    )


def test_the_newest_are_held_out_where_they_ask_something_new() -> None:
    known, held = split(rows(list(range(100))), by_time=True, seed=1)
    assert held.tolist() == list(range(80, 100))
    assert known.tolist() == list(range(80))


@pytest.mark.parametrize("different", [5, 20, 50])
def test_where_all_ask_the_same_few_things_some_of_these_are_drawn(different: int) -> None:
    data = rows([k % different for k in range(1000)])
    known, held = split(data, by_time=True, seed=1)
    assert 0.1 <= len(held) / 1000 <= 0.5
    assert not set(data.group[known]) & set(data.group[held])


def test_what_is_asked_all_the_time_stays_with_the_known() -> None:
    groups = [0 if k % 2 else k for k in range(1000)]
    data = rows(groups)
    _, held = split(data, by_time=True, seed=1)
    assert 0 not in data.group[held]
    assert min(data.group[held]) >= 800
