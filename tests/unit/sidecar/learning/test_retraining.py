"""When the sidecar trains, and how."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from sidecar.learning import retraining
from sidecar.learning.retraining import AGAIN_MS, ASTRAY_MINUTES, FIRST_MS, Retraining
from tokenweir.recorded import ENOUGH

DAY = 24 * 3_600_000


class Clock:
    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(retraining, "monotonic_ms", clock)
    return clock


@pytest.fixture(autouse=True)
def installed(monkeypatch):
    monkeypatch.setattr(retraining, "missing", list)


def test_without_a_model_the_first_training_comes_soon_after_the_start(clock):
    training = Retraining(Path("x"))
    assert training.due(DAY, in_service=False, recorded=ENOUGH) is None
    clock.now += FIRST_MS
    assert training.due(DAY, in_service=False, recorded=ENOUGH) == "none in service"
    assert training.due(DAY, in_service=True, recorded=ENOUGH) is None


def test_before_there_are_completions_enough_nothing_is_trained(clock):
    training = Retraining(Path("x"))
    clock.now += FIRST_MS
    assert training.due(DAY, in_service=False, recorded=ENOUGH - 1) is None


def test_then_it_comes_on_schedule(clock):
    training = Retraining(Path("x"))
    clock.now += DAY
    assert training.due(DAY, in_service=True, recorded=ENOUGH) == "schedule"


def test_a_schedule_of_never_is_kept(clock):
    training = Retraining(Path("x"))
    clock.now += 100 * DAY
    assert training.due(None, in_service=False, recorded=ENOUGH) is None


def test_predictions_that_stay_astray_call_for_one_before_its_time(clock):
    training = Retraining(Path("x"))
    clock.now += AGAIN_MS
    for minute in range(ASTRAY_MINUTES):
        assert training.due(DAY, in_service=True, recorded=ENOUGH) is None
        training.observe(minute, 0.5)
        training.observe(minute, 0.5)
    assert training.due(DAY, in_service=True, recorded=ENOUGH) == "deviation"


def test_a_bad_minute_now_and_then_does_not(clock):
    training = Retraining(Path("x"))
    clock.now += AGAIN_MS
    for minute in range(100):
        training.observe(minute, 0.5 if minute % 2 else 0.1)
        training.observe(minute, None)
    assert training.due(DAY, in_service=True, recorded=ENOUGH) is None


def test_after_a_failure_it_waits_for_the_next_time(clock):
    training = Retraining(Path("x"), ["false"])
    clock.now += FIRST_MS
    training._trained_at = clock.now
    clock.now += AGAIN_MS
    assert training.due(DAY, in_service=False, recorded=ENOUGH) is None


async def test_it_runs_in_a_process_of_its_own_at_the_lowest_priority():
    script = "import os; print(os.nice(0), os.environ['OMP_NUM_THREADS'], os.getpid())"
    training = Retraining(Path("x"), [sys.executable, "-c", script])
    training.begin("test")
    assert training.running
    await training.finished()
    nice, threads, pid = training.last.split()
    assert (nice, threads) == ("19", "1")
    assert int(pid) != os.getpid()
    assert (training.runs, training.failures) == (1, 0)


async def test_one_that_publishes_nothing_counts_as_failed_and_says_why():
    script = "import sys; print('not published: worse'); sys.exit(1)"
    training = Retraining(Path("x"), [sys.executable, "-c", script])
    training.begin("test")
    await training.finished()
    assert (training.runs, training.failures) == (1, 1)
    assert training.last == "not published: worse"


async def test_only_one_runs_at_a_time_and_a_sidecar_that_stops_ends_it():
    training = Retraining(Path("x"), [sys.executable, "-c", "import time; time.sleep(60)"])
    training.begin("first")
    await asyncio.sleep(0.5)
    task = training._task
    training.begin("second")
    assert training._task is task
    await training.stop()
    assert not training.running
    assert training._process is not None
    assert await asyncio.wait_for(training._process.wait(), 10) != 0


async def test_a_command_that_is_not_there_is_told():
    training = Retraining(Path("x"), ["/no/such/program"])
    training.begin("test")
    await training.finished()
    assert training.failures == 1


async def test_where_training_is_not_installed_it_says_what_is_missing(monkeypatch):
    monkeypatch.setattr(retraining, "missing", lambda: ["sklearn"])
    training = Retraining(Path("x"), ["true"])
    training.begin("test")
    assert not training.running
    assert "sklearn" in training.last
