"""What counts as lost, and what counts as executed twice."""

from __future__ import annotations

import pytest

from bench.faults.accounting import EngineFault, Kind, WorkerKill, account
from bench.faults.client import Outcome, Record


def record(
    outcome: Outcome, *, at: float = 10, until: float = 11, backend: str = "", port: int = 5000
) -> Record:
    return Record(
        id="r", stream=True, leave=None, started=at, ended=until, outcome=outcome, backend=backend, port=port
    )


def lost(failed: Record, kills=(), faults=(), executed=None) -> int:
    return len(account([failed], kills, faults, executed or {}).lost)


def test_an_answer_is_an_answer_and_a_client_that_left_is_no_loss():
    summed = account([record(Outcome.OK), record(Outcome.LEFT)], (), (), {})
    assert (summed.requests, summed.answered, summed.left, summed.lost) == (2, 1, 1, [])


@pytest.mark.parametrize("outcome", [Outcome.ERROR, Outcome.BROKEN, Outcome.TIMEOUT])
def test_a_failure_that_nothing_explains_is_lost(outcome: Outcome):
    assert lost(record(outcome)) == 1


def test_a_connection_in_the_killed_worker_is_excused_and_its_neighbour_is_not():
    kill = WorkerKill(at=10.5, ports=frozenset({5000}))
    assert lost(record(Outcome.BROKEN, port=5000), [kill]) == 0
    assert lost(record(Outcome.BROKEN, port=5001), [kill]) == 1


def test_a_port_used_again_after_the_kill_is_not_excused():
    kill = WorkerKill(at=10.5, ports=frozenset({5000}))
    assert lost(record(Outcome.BROKEN, at=12, until=13), [kill]) == 1


def test_a_crash_excuses_what_was_there_and_not_what_came_later():
    fault = EngineFault("a", Kind.CRASH, began=10.5, ended=14)
    assert lost(record(Outcome.BROKEN, backend="a"), faults=[fault]) == 0
    assert lost(record(Outcome.ERROR, backend="a", at=11, until=12), faults=[fault]) == 1
    assert lost(record(Outcome.BROKEN, backend="b"), faults=[fault]) == 1


def test_the_engines_own_record_tells_where_a_request_was_when_no_header_came():
    fault = EngineFault("a", Kind.CRASH, began=10.5, ended=14)
    assert lost(record(Outcome.BROKEN), faults=[fault], executed={"r": ["a"]}) == 0
    assert lost(record(Outcome.BROKEN), faults=[fault], executed={"r": ["b"]}) == 1


def test_a_frozen_engine_excuses_until_its_ejection_only():
    fault = EngineFault("a", Kind.FREEZE, began=10, ended=20, ejected=13)
    assert lost(record(Outcome.TIMEOUT, at=12, until=72, backend="a"), faults=[fault]) == 0
    assert lost(record(Outcome.TIMEOUT, at=15, until=75, backend="a"), faults=[fault]) == 1


def test_an_error_before_the_fault_began_is_lost():
    fault = EngineFault("a", Kind.FAIL, began=12, ended=15)
    assert lost(record(Outcome.ERROR, backend="a"), faults=[fault]) == 1
    assert lost(record(Outcome.ERROR, at=13, until=13.1, backend="a"), faults=[fault]) == 0


def test_two_beginnings_are_executed_twice_wherever_they_were():
    executed = {"x": ["a"], "y": ["a", "b"], "z": ["c", "c"]}
    assert account([], (), (), executed).executed_twice == ["y", "z"]
