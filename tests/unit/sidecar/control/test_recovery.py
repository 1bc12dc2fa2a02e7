"""Failures and restarts over a whole fleet."""

from __future__ import annotations

import re

import pytest

from sidecar.control.alerts import Kind
from sidecar.control.drain import progress
from sidecar.control.restart import Stage
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import ContainerReading, XidEvent
from tests.unit.sidecar.control.scene import fleet, warmed
from tokenweir.contract.records import Completion, State


def out_of_memory(stage, at):
    """A record of a request that met an engine without memory at `at` comes now."""
    record = Completion(
        id="r",
        gateway="g",
        time_ms=1,
        model="m",
        backend="a",
        kind="chat",
        outcome="upstream_error",
        error="out_of_memory",
    )
    return stage.loop.completed(record, at, stage.now)


def test_a_crashed_engine_is_out_within_a_second_restarted_warmed_and_ramped():
    stage = fleet("a", "b")
    stage.looks["a"] = Look.REFUSED
    stage.run(1)
    assert stage["a"].state is State.DOWN
    assert stage.run(2) == [("restart", "a")]
    stage.loop.recovery.restarted("a", True, "container restarted", stage.now)
    stage.looks["a"] = Look.LOADING
    stage.run(5)
    stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
    assert stage.run(3) == [("warm", "a")]
    assert stage["a"].state is State.STARTING
    assert "warming" in stage.published()["a"].reasons[0]
    warmed(stage, "a")
    stage.tick()
    backend = stage.published()["a"]
    assert (backend.state, backend.admit) == (State.READY, pytest.approx(0.05, rel=0.05))
    assert any(reason.startswith("ramp: ") for reason in backend.reasons)
    assert stage.published()["b"].admit == 1
    assert stage.loop.recovery.restarts.stage("a") is Stage.NONE


def test_a_crashed_engine_that_is_back_before_its_restart_is_left_alone():
    stage = fleet("a", "b")
    stage.looks["a"] = Look.REFUSED
    stage.run(1)
    stage.looks["a"] = Look.OK
    assert stage.run(10) == []
    assert stage["a"].state is State.READY
    assert stage.published()["a"].admit == 1


def test_an_engine_that_says_it_is_out_of_memory_is_out_at_once_and_restarted():
    stage = fleet("a", "b")
    assert out_of_memory(stage, stage.now)
    orders = stage.tick()
    assert [order.backend for order in orders.restarts] == ["a"]
    assert stage["a"].state is State.DOWN
    assert "out of memory" in stage["a"].reason
    assert stage.control().level == 3
    assert stage.loop.thresholds(stage.config, stage.now).z > stage.config.thresholds.z


def test_what_is_told_late_of_an_engine_that_is_being_restarted_does_not_restart_it_again():
    stage = fleet("a", "b")
    fell = stage.now
    out_of_memory(stage, fell)
    assert stage.run(1) == [("restart", "a")]
    stage.loop.recovery.restarted("a", True, "container restarted", stage.now)
    out_of_memory(stage, fell + 100)
    assert stage.run(5) == []
    assert stage.loop.recovery.restarts.stage("a") is Stage.AWAITED
    out_of_memory(stage, stage.now)
    assert ("restart", "a") in stage.run(300)


def test_what_is_told_late_of_an_engine_that_has_gone_does_not_restart_the_one_that_is_there():
    stage = fleet("a", "b")
    fell = stage.now
    stage.run(5)
    stage.tokens["a"] = 0.0
    stage.run(2)
    out_of_memory(stage, fell)
    assert ("restart", "a") not in stage.run(5)
    assert stage["a"].failures.verdict(stage.now, 1000) is None


def test_without_an_actuator_it_is_only_told():
    stage = fleet("a", "b", actuators=False)
    stage.looks["a"] = Look.REFUSED
    assert stage.run(5) == []
    assert (Kind.NO_ACTUATOR, "a") in stage.loop.alerts.standing
    stage.looks["a"] = Look.OK
    stage.run(3)
    assert stage.loop.alerts.standing == {}


def test_an_engine_that_somebody_wants_away_is_not_restarted_until_it_is_wanted_again():
    stage = fleet("a", "b")
    stage["a"].draining = True
    stage.looks["a"] = Look.REFUSED
    assert stage.run(60) == []
    stage["a"].draining = False
    assert stage.run(1) == [("restart", "a")]


def test_an_engine_that_is_started_with_other_arguments_is_not_restarted_meanwhile():
    stage = fleet("a", "b")
    stage["a"].changing = "a change to --fast"
    stage.tick()
    assert stage["a"].state is State.DRAINING
    assert stage.published()["a"].reasons[0] == "state: a change to --fast: drained: nothing is in flight"
    stage.looks["a"] = Look.REFUSED
    stage["a"].record.xids.append(XidEvent(stage.now + 1, 45, "GPU-a", "0"))
    assert stage.run(300) == []
    assert stage["a"].reason.startswith("a change to --fast: ")
    stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
    stage.run(3)
    stage["a"].changing = None
    stage.tick()
    assert stage["a"].state in {State.READY, State.STARTING}


def test_an_operators_restart_that_cannot_be_done_is_tried_by_the_limits_and_given_up():
    stage = fleet("a", "b")
    stage.loop.recovery.order_restart("a", stage.now)
    tried = []
    for _ in range(400):
        for order in stage.tick().restarts:
            tried.append(stage.now)
            stage.loop.recovery.restarted(order.backend, False, "no such container", stage.now)
    assert [round((at - tried[0]) / 1000) for at in tried] == [0, 10, 30]
    assert stage["a"].state is State.READY
    assert (Kind.RESTART_FAILED, "a") in stage.loop.alerts.standing


def test_a_container_that_was_killed_for_memory_is_restarted():
    stage = fleet("a", "b")
    stage["a"].record.container = ContainerReading(
        at=stage.now, source="docker", state="exited", exit_code=137, oom_killed=True, ended_at=stage.now + 1
    )
    assert stage.run(0.5) == [("restart", "a")]
    assert "exit status 137" in stage["a"].reason


def test_crashed_backends_do_not_wait_for_one_another():
    stage = fleet("a", "b", "c")
    stage.looks["a"] = Look.REFUSED
    assert stage.run(4) == [("restart", "a")]
    stage.loop.recovery.restarted("a", True, "done, and nothing came", stage.now)
    stage.looks["b"] = Look.REFUSED
    assert stage.run(4) == [("restart", "b")]


def test_one_that_serves_is_restarted_when_no_other_of_its_group_is_and_serves_until_then():
    stage = fleet("a", "b", "c")
    for name in ("a", "b"):
        stage.loop.recovery.order_restart(name, stage.now)
    assert stage.run(1) == [("restart", "a")]
    assert (stage["a"].state, stage["b"].state) == (State.DOWN, State.READY)
    stage.loop.recovery.restarted("a", True, "done", stage.now)
    assert stage.run(4) == []
    stage.looks["a"] = Look.REFUSED
    stage.run(2)
    stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
    assert ("restart", "b") in stage.run(4)


def test_one_out_of_memory_waits_for_its_turn_only_while_requests_run_there():
    stage = fleet("a", "b", "c")
    stage.loop.recovery.order_restart("a", stage.now)
    stage.run(1)
    stage.fleet.drain_progress = lambda _: progress(running, 1)
    running = 2
    stage["b"].failures.said_out_of_memory(stage.now)
    assert stage.run(2) == []
    assert stage["b"].state is State.DOWN
    running = 0
    assert stage.run(1) == [("restart", "b")]


def test_a_restart_that_brings_nothing_back_is_told_until_it_does():
    stage = fleet("a", "b")
    stage.looks["a"] = Look.REFUSED
    stage.run(4)
    stage.loop.recovery.restarted("a", True, "done", stage.now)
    stage.run(299)
    assert (Kind.RESTART_LONG, "a") not in stage.loop.alerts.standing
    stage.run(3)
    assert "restart awaited for" in stage.loop.alerts.standing[Kind.RESTART_LONG, "a"].text
    stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
    stage.run(4)
    assert stage.loop.alerts.standing == {}


def test_after_its_restarts_of_an_hour_it_stays_out_and_somebody_is_called():
    stage = fleet("a", "b", restart={"most_per_hour": 1})
    for _ in range(2):
        stage.looks["a"] = Look.REFUSED
        stage.run(4)
        stage.loop.recovery.restarted("a", True, "done", stage.now)
        stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
        stage.run(4)
    stage.looks["a"] = Look.REFUSED
    stage.run(4)
    assert stage.loop.recovery.restarts.stage("a") is Stage.SPENT
    assert stage.loop.alerts.standing[Kind.RESTARTS_SPENT, "a"].page
    stage.looks["a"] = Look.OK
    stage.run(10)
    assert stage["a"].state is State.DOWN
    assert stage.loop.recovery.bring_back("a")
    stage.run(1)
    assert stage["a"].state in {State.READY, State.STARTING}


def test_a_restart_between_two_looks_is_seen_by_the_counters():
    stage = fleet("a", "b")
    stage.tokens["a"] = 0.0
    assert stage.run(1) == [("warm", "a")]


def test_what_answered_before_the_restart_was_done_does_not_end_it():
    stage = fleet("a", "b")
    assert stage.loop.recovery.order_restart("a", stage.now)
    assert not stage.loop.recovery.order_restart("a", stage.now)
    assert stage.run(0.5) == [("restart", "a")]
    stage.loop.recovery.restarted("a", True, "done", stage.now)
    stage.loop.step(stage.config, True, stage.now)
    assert stage.loop.recovery.restarts.stage("a") is Stage.AWAITED
    stage.tokens["a"] = 0.0
    stage.run(1)
    assert stage.loop.recovery.restarts.stage("a") is Stage.NONE


def test_the_old_process_that_answers_on_after_a_restart_is_not_believed():
    stage = fleet("a", "b")
    assert stage.loop.recovery.order_restart("a", stage.now)
    assert stage.run(0.5) == [("restart", "a")]
    stage.loop.recovery.restarted("a", True, "told", stage.now)
    stage.run(3)
    assert stage["a"].state is State.DOWN
    assert stage.loop.recovery.restarts.stage("a") is Stage.AWAITED
    stage.looks["a"] = Look.REFUSED
    stage.run(1)
    stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
    assert ("warm", "a") in stage.run(3)
    assert stage.loop.recovery.restarts.stage("a") is Stage.NONE


def test_an_engine_that_shows_no_sign_of_its_restart_is_back_in_the_end():
    stage = fleet("a", "b")
    stage.loop.recovery.order_restart("a", stage.now)
    stage.run(0.5)
    stage.loop.recovery.restarted("a", True, "told", stage.now)
    stage.run(14)
    assert stage["a"].state is State.DOWN
    stage.run(2)
    assert stage["a"].state is State.READY


@pytest.mark.parametrize(("code", "restarts"), [(13, [("restart", "a")]), (79, []), (63, [])])
def test_an_xid_restarts_the_engine_takes_the_gpu_out_or_is_noted(code, restarts):
    stage = fleet("a", "b")
    stage["a"].record.xids.append(XidEvent(stage.now + 1, code, "GPU-a", "0"))
    assert stage.run(1) == restarts
    out = code != 63
    assert (stage["a"].state is State.DOWN) is out
    if code == 79:
        assert stage.loop.alerts.standing[Kind.XID, "a"].page
        assert stage["a"].reason == (
            "taken out: XID 79 (GPU has fallen off the bus) on card 0; no restart mends it"
        )
        stage.run(60)
        assert stage["a"].state is State.DOWN
        assert stage.loop.recovery.bring_back("a")
        stage.run(0.5)
        assert stage["a"].state is State.READY


def test_that_restarts_are_turned_off_is_told_as_such():
    stage = fleet("a", "b", restart={"enabled": False})
    stage.looks["a"] = Look.REFUSED
    assert stage.run(5) == []
    text = stage.loop.alerts.standing[Kind.NO_ACTUATOR, "a"].text
    assert "restarts are turned off, so nobody restarts it" in text


def test_one_out_of_memory_that_nobody_here_restarts_is_told_until_another_process_serves():
    stage = fleet("a", "b", actuators=False)
    stage["a"].failures.said_out_of_memory(stage.now)
    stage.run(30)
    assert (Kind.OUT_OF_MEMORY, "a") in stage.loop.alerts.standing
    stage.looks["a"] = Look.REFUSED
    stage.run(2)
    stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
    stage.run(5)
    assert stage.loop.alerts.standing == {}


def test_a_change_to_other_arguments_ends_what_the_limit_had_decided():
    stage = fleet("a", "b", restart={"most_per_hour": 0})
    stage["a"].failures.said_out_of_memory(stage.now)
    stage.run(1)
    assert (Kind.RESTARTS_SPENT, "a") in stage.loop.alerts.standing
    assert stage.loop.recovery.set_aside("a", stage.now)
    stage.run(1)
    assert stage.loop.alerts.standing == {}
    assert stage["a"].state is State.READY


def test_that_restarts_are_spent_is_told_until_an_operator_s_restart_brings_it_back():
    stage = fleet("a", "b", restart={"most_per_hour": 0})
    stage.looks["a"] = Look.REFUSED
    assert stage.run(5) == []
    assert stage.loop.alerts.standing[Kind.RESTARTS_SPENT, "a"].page
    stage.loop.recovery.order_restart("a", stage.now)
    assert stage.run(1) == [("restart", "a")]
    stage.loop.recovery.restarted("a", True, "restarted", stage.now)
    stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
    stage.run(3)
    assert stage.loop.alerts.standing == {}


def test_a_change_that_brings_no_engine_back_is_told_after_a_third_of_its_time():
    stage = fleet("a", "b")
    stage["a"].changing, stage["a"].applied_at = "a change to --fast", stage.now
    stage.looks["a"] = Look.REFUSED
    stage.run(299)
    assert stage.loop.alerts.standing == {}
    stage.run(2)
    text = stage.loop.alerts.standing[Kind.RESTART_LONG, "a"].text
    assert re.fullmatch(r"a change to --fast: applied 30\d s ago; it is given up after 900 s", text)
    stage["a"].changing = stage["a"].applied_at = None
    stage.tick()
    assert (Kind.RESTART_LONG, "a") not in stage.loop.alerts.standing
