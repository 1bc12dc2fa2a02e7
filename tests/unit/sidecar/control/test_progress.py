"""How long an engine's counters have stood still."""

from __future__ import annotations

from sidecar.control.progress import Progress
from sidecar.telemetry.readings import EngineReading


def reading(at, tokens, running=1.0):
    return EngineReading(at=at, source="vllm", running=running, waiting=0, movement=(tokens, None))


def test_the_age_grows_while_work_stands_still():
    progress = Progress()
    progress.observe(reading(0, 10))
    progress.observe(reading(500, 10))
    assert progress.age_ms(1000, 0) == 1000


def test_any_moving_counter_is_progress():
    progress = Progress()
    progress.observe(reading(0, 10))
    progress.observe(reading(500, 11))
    assert progress.age_ms(600, 0) == 100


def test_an_idle_engine_is_not_expected_to_move():
    progress = Progress()
    progress.observe(reading(0, 10, running=0))
    assert progress.age_ms(60_000, 0) == 0


def test_work_that_begins_is_measured_from_the_last_idle_moment():
    progress = Progress()
    progress.observe(reading(0, 10, running=0))
    progress.observe(reading(5000, 10, running=0))
    progress.observe(reading(5500, 10, running=3))
    assert progress.age_ms(6000, 0) == 1000


def test_an_idle_engine_that_stops_answering_ages():
    progress = Progress()
    progress.observe(reading(0, 10, running=0))
    assert progress.age_ms(4000, 2) == 4000


def test_an_engine_without_counters_has_no_age():
    progress = Progress()
    progress.observe(EngineReading(at=0, source="x", running=1, movement=(None, None)))
    assert progress.age_ms(1000, 0) is None
