"""Engines that keep requests waiting themselves."""

from __future__ import annotations

from sidecar.control.backlog import Backlog
from sidecar.telemetry.readings import EngineReading


def backlog(*readings, source="vllm"):
    """What the readings say, each (running, waiting, KV use), half a second apart."""
    made = Backlog()
    for number, (running, waiting, kv_use) in enumerate(readings):
        made.observe(
            EngineReading(at=500 * number, source=source, running=running, waiting=waiting, kv_use=kv_use)
        )
    return made


def bound(*readings, source="vllm"):
    return backlog(*readings, source=source).now(500 * len(readings))[0]


def test_an_engine_that_keeps_requests_waiting_in_tight_memory_takes_what_it_runs():
    most, reason = backlog((14, 4, 0.97), (10, 8, 0.93)).now(1000)
    assert most == 14
    assert reason == "full: the engine keeps 8 requests waiting beside 10"


def test_one_that_lets_all_in_is_not_bounded():
    assert bound((14, 0, 0.9), (14, 0, 0.9)) is None


def test_prompts_that_wait_for_a_moment_say_nothing():
    assert bound((14, 0, 0.9), (10, 8, 0.93)) is None
    assert bound((4, 9, 0.1), (8, 5, 0.2)) is None


def test_a_batch_that_stays_as_large_while_requests_wait_is_all_that_it_takes():
    assert bound((16, 9, 0.1), (16, 12, 0.1)) == 16


def test_where_memory_is_not_told_waiting_is_enough():
    assert bound((3, 1, None), (4, 1, None)) == 4


def test_memory_that_is_full_by_the_engine_s_own_telling_bounds_it_too():
    assert bound((14, 0, 0.98), (15, 0, 0.99)) == 15
    assert bound((14, 0, 0.98), (15, 0, 0.96)) is None


def test_an_engine_that_keeps_what_has_ended_is_not_full_for_that():
    assert bound((1, 0, 1.0), (1, 0, 1.0), source="llamacpp") is None


def test_an_engine_that_runs_nothing_and_lets_requests_wait_takes_one():
    assert bound((0, 3, 0.9), (0, 3, 0.9)) == 1


def test_old_readings_say_nothing():
    assert backlog((14, 4, 0.97), (10, 8, 0.93)).now(10_000) == (None, None)


def test_what_is_read_seldom_is_believed_until_the_next_reading():
    made = Backlog()
    for at in (0, 4000):
        made.observe(EngineReading(at=at, source="vllm", running=3, waiting=2, kv_use=0.9))
    assert made.now(8000)[0] == 3


def test_an_engine_that_tells_no_batch_is_not_bounded():
    assert bound((None, 3, 0.9), (None, 3, 0.9)) is None
