"""The figures of the faults bench."""

from __future__ import annotations

import math

from bench.faults.accounting import EngineFault, Kind
from bench.faults.client import Outcome, Record
from bench.faults.figures import bars, closing_ms, ejections
from bench.faults.witness import Seen

LEFT = Record(id="r", stream=True, leave=None, started=9, ended=10, outcome=Outcome.LEFT)


def test_a_connection_closed_after_its_client_left_took_that_long():
    assert closing_ms(LEFT, Seen(began=9.1, closed=10.05)) == 50.000000000000711


def test_an_answer_that_was_whole_before_the_client_left_tells_nothing():
    assert closing_ms(LEFT, Seen(began=9.1, done=9.9)) is None


def test_an_answer_that_ran_on_to_its_end_counts_to_its_end():
    assert closing_ms(LEFT, Seen(began=9.1, done=12)) == 2000


def test_a_connection_that_is_still_open_counts_for_ever():
    assert closing_ms(LEFT, Seen(began=9.1)) == math.inf


def test_a_client_that_stayed_tells_nothing():
    stayed = Record(id="r", stream=True, leave=None, started=9, ended=10, outcome=Outcome.OK)
    assert closing_ms(stayed, Seen(began=9.1, done=10)) is None


def test_a_frozen_engine_that_was_never_ejected_took_for_ever():
    faults = [
        EngineFault("a", Kind.FREEZE, began=10, ended=20, ejected=13.5),
        EngineFault("b", Kind.CRASH, began=10, ended=20),
        EngineFault("c", Kind.FREEZE, began=10, ended=20),
    ]
    assert ejections(faults) == [3.5, math.inf]


def test_a_full_run_must_have_ten_thousand_requests():
    overall = {
        "requests": 2000,
        "lost": 0,
        "executed_twice": 0,
        "inflight_left": 0,
        "frozen_ejected_s": 3.1,
        "upstream_closed_ms_p99": 4.0,
    }
    assert all(bar.ok for bar in bars(overall, quick=True))
    assert [bar.name for bar in bars(overall, quick=False) if not bar.ok] == ["requests"]
