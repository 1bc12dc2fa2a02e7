"""`model/dataset.py` and the words of `model/core.py`."""

from __future__ import annotations

import numpy as np

from model.core import Words
from model.dataset import thin

WORDS = Words(np.array([1, 2, 3, 4, 5, 6], np.uint16), np.array([2, 0, 3, 1], np.int32))


def test_words_of_some_requests_come_in_the_order_asked_for() -> None:
    taken = WORDS.take(np.array([3, 0, 1, 0]))
    assert taken.count.tolist() == [1, 2, 0, 2]
    assert taken.index.tolist() == [6, 1, 2, 1, 2]


def test_no_request_has_no_words() -> None:
    taken = WORDS.take(np.array([], np.int64))
    assert (len(taken.index), len(taken.count)) == (0, 0)


def test_no_group_keeps_more_rows_than_allowed_and_small_ones_keep_all() -> None:
    group = np.array([7] * 100 + [8] * 3 + [9])
    kept = group[thin(group, 5, seed=1)]
    assert [int((kept == name).sum()) for name in (7, 8, 9)] == [5, 3, 1]


def test_rows_that_are_kept_stay_in_their_order_and_depend_on_the_seed() -> None:
    group = np.zeros(100, np.int64)
    first, second = thin(group, 10, 1), thin(group, 10, 2)
    assert (np.diff(first) > 0).all()
    assert first.tolist() != second.tolist()
    assert thin(group, 10, 1).tolist() == first.tolist()
