"""Whether an engine has died, and of what."""

from __future__ import annotations

from sidecar.control.failures import Cause, ContainerWatch, FailureWatch
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import ContainerReading

HOLD = 1500


def test_one_that_served_and_refuses_for_a_while_has_crashed():
    watch = FailureWatch()
    watch.looked(Look.REFUSED, True, 0)
    assert watch.verdict(1000, HOLD) is None
    failure = watch.verdict(1600, HOLD)
    assert failure.cause is Cause.CRASH
    assert failure.text == "it served, and has refused connections for 1.6 s"


def test_a_crash_is_told_once():
    watch = FailureWatch()
    watch.looked(Look.REFUSED, True, 0)
    assert watch.verdict(2000, HOLD)
    assert watch.verdict(9000, HOLD) is None


def test_one_that_never_served_has_not_crashed():
    watch = FailureWatch()
    watch.looked(Look.REFUSED, False, 0)
    assert watch.verdict(60_000, HOLD) is None


def test_one_that_comes_back_by_itself_is_left_alone():
    watch = FailureWatch()
    watch.looked(Look.REFUSED, True, 0)
    watch.looked(Look.LOADING, False, 1000)
    assert watch.verdict(9000, HOLD) is None


def test_one_that_is_late_has_not_crashed():
    watch = FailureWatch()
    watch.looked(Look.LATE, True, 0)
    assert watch.verdict(60_000, HOLD) is None


def test_the_next_crash_is_told_again():
    watch = FailureWatch()
    watch.looked(Look.REFUSED, True, 0)
    watch.verdict(2000, HOLD)
    watch.looked(Look.OK, False, 5000)
    watch.looked(Look.REFUSED, True, 60_000)
    assert watch.verdict(62_000, HOLD)


def test_the_engine_s_own_word_is_enough():
    watch = FailureWatch()
    watch.said_out_of_memory(0)
    assert watch.verdict(0, HOLD).cause is Cause.OUT_OF_MEMORY
    assert watch.verdict(500, HOLD) is None


def container(**members):
    return ContainerReading(at=0, source="docker", **members)


def test_a_container_killed_for_memory_is_told_once():
    watch = ContainerWatch()
    assert watch.verdict(container(state="running"), 100) is None
    dead = container(state="exited", exit_code=137, oom_killed=True, ended_at=500.0)
    failure = watch.verdict(dead, 600)
    assert failure.cause is Cause.OUT_OF_MEMORY
    assert "exit status 137" in failure.text
    assert watch.verdict(dead, 1100) is None
    again = container(state="exited", exit_code=137, oom_killed=True, ended_at=9000.0)
    assert watch.verdict(again, 9100)


def test_an_end_that_was_there_at_the_first_look_is_history():
    watch = ContainerWatch()
    dead = container(state="exited", exit_code=137, ended_at=50.0)
    assert watch.verdict(dead, 100) is None
    assert watch.verdict(dead, 600) is None


def test_an_ordered_end_is_no_failure():
    watch = ContainerWatch()
    watch.verdict(None, 0)
    assert watch.verdict(container(state="exited", exit_code=137, ordered=True, ended_at=500.0), 600) is None


def test_a_worker_killed_inside_a_living_container_counts():
    watch = ContainerWatch()
    watch.verdict(None, 0)
    assert watch.verdict(container(state="running", oom_at=500.0), 600) is None, "its end may just follow"
    failure = watch.verdict(container(state="running", oom_at=500.0), 1000)
    assert failure.text == "its container ran out of memory: a process in it was killed"
