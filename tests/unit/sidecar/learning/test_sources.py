"""Losses and repetitions by the numbers of each source."""

from __future__ import annotations

import json

from sidecar.learning.sources import MOST_SOURCES, Sources


def test_records_in_order_are_neither_lost_nor_repeated():
    sources = Sources()
    assert [sources.admit("g:1", first, 10, fresh=False) for first in (0, 10, 20)] == [0, 0, 0]
    assert (sources.lost, sources.repeated) == (0, 0)


def test_a_gap_is_a_loss():
    sources = Sources()
    sources.admit("g:1", 0, 10, fresh=False)
    assert sources.admit("g:1", 15, 5, fresh=False) == 0
    assert sources.lost == 5


def test_a_batch_sent_twice_is_skipped_as_far_as_it_was_counted():
    sources = Sources()
    sources.admit("g:1", 0, 10, fresh=False)
    assert sources.admit("g:1", 0, 10, fresh=False) == 10
    assert sources.admit("g:1", 5, 10, fresh=False) == 5
    assert (sources.repeated, sources.lost) == (15, 0)
    assert sources.admit("g:1", 15, 1, fresh=False) == 0


def test_an_old_batch_does_not_set_the_count_back():
    sources = Sources()
    sources.admit("g:1", 0, 100, fresh=False)
    sources.admit("g:1", 0, 10, fresh=False)
    assert sources.admit("g:1", 100, 1, fresh=False) == 0
    assert sources.lost == 0


def test_a_new_source_begins_at_nought_unless_nothing_is_remembered():
    remembering, fresh = Sources(), Sources()
    remembering.admit("g:1", 7, 1, fresh=False)
    fresh.admit("g:1", 7, 1, fresh=True)
    assert (remembering.lost, fresh.lost) == (7, 0)


def test_sources_are_bounded_in_number_and_the_busy_ones_stay():
    sources = Sources()
    for n in range(2 * MOST_SOURCES):
        sources.admit(f"g:{n}", 0, 1, fresh=False)
        sources.admit("busy", n, 1, fresh=False)
    assert len(sources.dump()["next"]) == MOST_SOURCES
    assert sources.lost == 0


def test_a_dump_restores_the_numbers():
    sources = Sources()
    sources.admit("g:1", 3, 2, fresh=False)
    restored = Sources.restore(json.loads(json.dumps(sources.dump())))
    assert restored.admit("g:1", 5, 1, fresh=False) == 0
    assert restored.lost == 3
