"""`core/documents/fence.lua`: which snapshot follows which."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tokenweir.luavm import new_runtime

Judge = Callable[..., str]


@pytest.fixture
def judge() -> Judge:
    """`judge(own, fence, sequence, now=0)`, with the rival remembered between the calls of one test."""
    lua = new_runtime()
    function = lua.require(b"tokenweir.core.documents.fence").judge
    rival = lua.table()

    def call(own: dict[str, Any] | None, fence: int, sequence: int, now: float = 0) -> str:
        table = own and lua.table_from({key.encode(): value for key, value in own.items()})
        verdict: bytes = function(table, fence, sequence, now, rival)
        return verdict.decode()

    return call


FRESH = {"fence": 5, "sequence": 10, "stale": False, "from_disk": False}
STALE = {**FRESH, "stale": True}
FROM_DISK = {**STALE, "from_disk": True}


def test_the_first_snapshot_is_taken(judge: Judge) -> None:
    assert judge(None, 1, 1) == "newer"


@pytest.mark.parametrize(("fence", "sequence"), [(5, 11), (6, 1)])
def test_a_higher_fence_or_sequence_is_newer(judge: Judge, fence: int, sequence: int) -> None:
    assert judge(FRESH, fence, sequence) == "newer"


@pytest.mark.parametrize("own", [FRESH, STALE, FROM_DISK])
def test_the_same_is_the_same(judge: Judge, own: dict[str, Any]) -> None:
    assert judge(own, 5, 10) == "same"


def test_a_lower_fence_or_sequence_is_refused(judge: Judge) -> None:
    assert judge(FRESH, 4, 99) == "lower fence"
    assert judge(FRESH, 5, 9) == "lower sequence"


def test_a_copy_from_disk_gives_way_to_any_other_fence(judge: Judge) -> None:
    assert judge(FROM_DISK, 4, 1) == "newer"


def test_a_stale_copy_gives_way_to_a_lower_one_that_moves_on_for_ten_seconds(judge: Judge) -> None:
    for tick in range(20):
        assert judge(STALE, 4, tick, now=tick * 500) == "lower fence"
    assert judge(STALE, 4, 20, now=10_000) == "newer"


def test_a_leftover_that_does_not_move_is_never_taken(judge: Judge) -> None:
    for second in range(100):
        assert judge(STALE, 4, 7, now=second * 1000) == "lower fence"


def test_a_lower_one_is_refused_however_long_it_moves_while_the_own_is_fresh(judge: Judge) -> None:
    for tick in range(100):
        assert judge(FRESH, 4, tick, now=tick * 500) == "lower fence"


def test_a_rival_that_paused_starts_anew(judge: Judge) -> None:
    assert judge(STALE, 4, 1, now=0) == "lower fence"
    assert judge(STALE, 4, 2, now=50_000) == "lower fence"
    assert judge(STALE, 4, 3, now=55_000) == "lower fence"
    assert judge(STALE, 4, 4, now=60_000) == "newer"
