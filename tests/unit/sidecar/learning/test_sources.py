"""Losses and repetitions by the numbers of each source."""

from __future__ import annotations

import json
import random

from hypothesis import given
from hypothesis import strategies as st

from sidecar.learning.sources import GRACE_MS, MOST_GAPS, MOST_SOURCES, Sources


def admit(sources, first, count, source="g:1", *, fresh=False, now=0):
    return sources.admit(source, first, count, fresh, now)


def settled(sources):
    sources.settle(GRACE_MS)
    return sources.lost


def test_records_in_order_are_neither_lost_nor_repeated():
    sources = Sources()
    assert [admit(sources, first, 10) for first in (0, 10, 20)] == [[(0, 10)]] * 3
    assert (settled(sources), sources.repeated, sources.missing) == (0, 0, 0)


def test_a_gap_that_does_not_close_in_time_is_a_loss():
    sources = Sources()
    admit(sources, 0, 10)
    assert admit(sources, 15, 5) == [(0, 5)]
    sources.settle(GRACE_MS - 1)
    assert (sources.lost, sources.missing) == (0, 5)
    sources.settle(GRACE_MS)
    assert (sources.lost, sources.missing) == (5, 0)


def test_a_batch_that_was_overtaken_closes_the_gap():
    sources = Sources()
    admit(sources, 20, 10)
    assert admit(sources, 5, 10) == [(0, 10)]
    assert sources.missing == 10
    assert admit(sources, 0, 20) == [(0, 5), (15, 20)]
    assert (settled(sources), sources.repeated) == (0, 10)


def test_a_batch_sent_twice_is_skipped_as_far_as_it_was_counted():
    sources = Sources()
    admit(sources, 0, 10)
    assert admit(sources, 0, 10) == []
    assert admit(sources, 5, 10) == [(5, 10)]
    assert (sources.repeated, settled(sources)) == (15, 0)


def test_a_new_source_begins_at_nought_unless_nothing_is_remembered():
    remembering, fresh = Sources(), Sources()
    admit(remembering, 7, 1)
    admit(fresh, 7, 1, fresh=True)
    assert (settled(remembering), settled(fresh)) == (7, 0)


def test_sources_are_bounded_in_number_and_the_busy_ones_stay():
    sources = Sources()
    for n in range(2 * MOST_SOURCES):
        admit(sources, 0, 1, f"g:{n}")
        admit(sources, n, 1, "busy")
    assert len(sources.dump()["sources"]) == MOST_SOURCES
    assert settled(sources) == 0


def test_gaps_are_bounded_in_number_and_none_is_forgotten_uncounted():
    sources = Sources()
    for n in range(3 * MOST_GAPS):
        admit(sources, 2 * n + 1, 1)
    assert sources.missing == MOST_GAPS
    assert sources.lost + sources.missing == 3 * MOST_GAPS


def test_a_dump_restores_the_numbers():
    sources = Sources()
    admit(sources, 3, 2)
    restored = Sources.restore(json.loads(json.dumps(sources.dump())))
    assert admit(restored, 5, 1) == [(0, 1)]
    assert admit(restored, 0, 3) == [(0, 3)]
    assert settled(restored) == 0


@given(
    st.lists(st.integers(1, 7), min_size=1, max_size=15),
    st.integers(0, 2**32),
    st.lists(st.booleans(), min_size=15, max_size=15),
)
def test_every_record_is_counted_once_whatever_the_order_and_the_repetitions(sizes, seed, dropped):
    sources, batches, first = Sources(), [], 0
    for size in sizes:
        batches.append((first, size))
        first += size
    sent = [batch for batch, drop in zip(batches, dropped, strict=False) if not drop] * 2
    random.Random(seed).shuffle(sent)
    counted: list[int] = []
    for start, size in sent:
        for low, high in admit(sources, start, size):
            counted += range(start + low, start + high)
    assert sorted(counted) == sorted({n for start, size in sent for n in range(start, start + size)})
    assert settled(sources) == (max(counted) + 1 if counted else 0) - len(counted)
