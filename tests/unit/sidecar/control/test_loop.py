"""The control loop over a whole fleet."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from sidecar.control.alerts import Kind
from sidecar.control.warm_up import WarmUp
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import ContainerReading, XidEvent
from tests.unit.sidecar.control.scene import Scene, fleet
from tokenweir.contract.records import State


def test_another_sidecar_goes_on_where_the_leader_stopped():
    stage = fleet("a", "b", ramp={"warm_up": 0})
    stage["a"].ramp.begin(stage.config.ramp, stage.now)
    stage.run(60)
    stage["b"].record.xids.append(XidEvent(stage.now + 1, 79, "GPU-b"))
    stage.run(1)
    other = fleet("a", "b", ramp={"warm_up": 0})
    other.loop.restore(json.loads(json.dumps(stage.loop.dump(stage.now))), other.now)
    other.tick()
    assert other["a"].ramp.share == pytest.approx(stage["a"].ramp.share, rel=0.05)
    assert other["b"].state is State.DOWN
    assert (Kind.XID, "b") in other.loop.alerts.standing


def test_who_takes_over_restarts_an_engine_that_fell_with_the_sidecar():
    stage = fleet("a", "b", "c")
    other = Scene(backends=[{"id": name, "url": f"http://{name}:1"} for name in "abc"])
    other.looks["a"] = Look.REFUSED
    other.loop.restore(json.loads(json.dumps(stage.loop.dump(stage.now))), other.now)
    assert other.run(5) == [("restart", "a")]
    unknown = Scene(backends=[{"id": name, "url": f"http://{name}:1"} for name in "abc"])
    unknown.looks["a"] = Look.REFUSED
    assert unknown.run(5) == []


def test_a_change_that_was_cut_off_is_told_and_its_backend_serves():
    stage = fleet("a", "b")
    stage["a"].changing = "a change to --fast"
    stage.tick()
    other = fleet("a", "b")
    other.loop.restore(json.loads(json.dumps(stage.loop.dump(stage.now))), other.now)
    other.tick()
    assert other["a"].state is State.READY
    assert "a change to --fast was cut off" in other.loop.alerts.standing[Kind.CHANGE_CUT_OFF, "a"].text
    other.loop.recovery.bring_back("a")
    assert other.loop.alerts.standing == {}


def test_one_that_does_not_lead_orders_nothing():
    stage = fleet("a", "b")
    stage.looks["a"] = Look.REFUSED
    for _ in range(10):
        orders = stage.tick(leading=False)
        assert not (orders.restarts or orders.starts or orders.warm_ups)


def test_a_thousand_backends_are_decided_in_a_part_of_a_tick():
    from time import thread_time

    stage = Scene(
        backends=[{"id": f"b{k}", "url": f"http://10.0.{k // 250}.{k % 250 + 1}:1"} for k in range(1000)]
    )
    stage.tick()
    stage.tick()
    best = float("inf")
    for _ in range(5):
        began = thread_time()
        stage.loop.step(stage.config, True, stage.now)
        best = min(best, thread_time() - began)
    assert best < 0.1, "seconds of CPU"


def hand_over(stage, other, take="restore"):
    """Another sidecar takes what this one remembers, or follows it."""
    getattr(other.loop, take)(json.loads(json.dumps(stage.loop.dump(stage.now))), other.now)


def test_who_does_not_lead_shows_what_the_leader_decided():
    stage = fleet("a", "b", "c", ramp={"warm_up": 0}, restart={"most_per_hour": 0})
    stage["a"].failures.said_out_of_memory(stage.now)
    stage["b"].ramp.begin(stage.config.ramp, stage.now)
    stage.run(1)
    other = fleet("a", "b", "c", ramp={"warm_up": 0})
    hand_over(stage, other, "follow")
    other.tick(leading=False)
    assert other["a"].state is State.DOWN
    assert "the most allowed" in other["a"].reason
    assert other["b"].ramp.going_on
    assert other.loop.alerts.standing == stage.loop.alerts.standing
    stage.loop.recovery.bring_back("a")
    stage["b"].ramp.end()
    hand_over(stage, other, "follow")
    other.tick(leading=False)
    assert other["a"].state is State.READY
    assert not other["b"].ramp.going_on
    assert other.loop.alerts.standing == {}


def test_alerts_go_on_under_the_next_leader_and_end_with_their_cause():
    stage = fleet("a", "b", actuators=False)
    stage.looks["a"] = Look.REFUSED
    stage.run(5)
    other = fleet("a", "b", actuators=False)
    other.looks["a"] = Look.REFUSED
    for _ in range(10):
        other.tick(leading=False)
    hand_over(stage, other)
    other.run(2)
    told = stage.loop.alerts.standing[Kind.NO_ACTUATOR, "a"]
    assert other.loop.alerts.standing[Kind.NO_ACTUATOR, "a"].since_ms == told.since_ms
    other.looks["a"] = Look.OK
    other.run(3)
    assert other.loop.alerts.standing == {}


def test_an_error_of_long_ago_is_not_acted_on_by_who_takes_over():
    stage = fleet("a", "b", "c")
    stage["a"].record.xids.append(XidEvent(stage.now + 1, 79, "GPU-a"))
    stage["b"].record.xids.append(XidEvent(stage.now + 1, 45, "GPU-b"))
    for _ in range(60):
        stage.tick(leading=False)
    stage["c"].record.xids.append(XidEvent(stage.now + 1, 45, "GPU-c"))
    stage.tick(leading=False)
    assert stage.run(3) == [("restart", "c")]
    assert stage["a"].state is State.READY


def test_who_takes_over_does_not_act_again_on_what_the_leader_has_acted_on():
    stage = fleet("a", "b", "c")
    stage["a"].record.xids.append(XidEvent(stage.now + 1, 45, "GPU-a"))
    dead = ContainerReading(at=0, source="docker", state="exited", oom_killed=True, ended_at=stage.now + 1)
    stage["b"].containers.pass_over(stage.now)
    stage["b"].record.container = dead
    assert sorted(stage.run(1)) == [("restart", "a"), ("restart", "b")]
    other = fleet("a", "b", "c")
    shift = other.now - stage.now
    # It sees the error of the GPU by a look of its own, a moment later.
    other["a"].record.xids.append(XidEvent(other.now + 1, 45, "GPU-a"))
    other["b"].containers.pass_over(0)
    other["b"].record.container = replace(dead, ended_at=dead.ended_at + shift)
    other.loop.restore(json.loads(json.dumps(stage.loop.dump(stage.now))), other.now)
    assert not [order for order in other.run(10) if order[0] == "restart"]


def test_who_takes_over_keeps_the_margin_that_an_out_of_memory_has_widened():
    stage, other = fleet("a", "b"), fleet("a", "b")
    stage.loop.margin.out_of_memory(stage.now)
    other.loop.restore(json.loads(json.dumps(stage.loop.dump(stage.now))), other.now)
    widened = stage.loop.thresholds(stage.config, stage.now).z
    assert other.loop.thresholds(other.config, other.now).z == widened > stage.config.thresholds.z


def test_who_takes_over_keeps_in_service_what_answers_requests_and_no_looks():
    stage, other = fleet("a", "b"), fleet("a", "b")
    stage.looks["a"] = other.looks["a"] = Look.LATE
    for _ in range(6):
        stage["a"].served_at = stage.now
        stage.tick()
        other.tick(leading=False)
    assert (stage["a"].state, other["a"].state) == (State.READY, State.DOWN)
    memory = json.loads(json.dumps(stage.loop.dump(stage.now)))
    other.loop.restore(memory, other.now, 4000)
    other.tick()
    assert other["a"].state is State.READY
    # No request ends well there.
    other.run(4)
    assert other["a"].state is State.DOWN
    other.loop.restore(memory, other.now, 60_000)
    other.tick()
    assert other["a"].state is State.DOWN


def test_what_is_told_of_a_backend_goes_with_it():
    stage = fleet("a", "b", actuators=False)
    stage.looks["a"] = Look.REFUSED
    stage.run(5)
    assert stage.loop.alerts.standing
    stage.fleet.forget("a")
    del stage.looks["a"]
    stage.tick()
    assert stage.loop.alerts.standing == {}


def test_what_is_begun_is_remembered_with_the_same_tick():
    stage = fleet("a", "b")
    stage.looks["a"] = Look.REFUSED
    stage.run(1.5)
    stage.loop.recovery.order_restart("b", stage.now)
    stage.now += 500
    changed, orders = stage.loop.step(stage.config, True, stage.now)
    assert orders.restarts
    assert changed


def test_an_engine_that_was_restarted_while_no_sidecar_looked_is_new():
    stage = fleet("a", "b")
    stage.looks["a"] = Look.REFUSED
    assert stage.run(3) == [("restart", "a")]
    stage.loop.recovery.restarted("a", True, "restarted", stage.now)
    other = fleet("a", "b")
    hand_over(stage, other)
    assert other.run(20) == [("warm", "a")]
    assert other["b"].admit == 1


def test_who_does_not_lead_shows_what_is_changed_and_warmed_until_it_leads_itself():
    stage = fleet("a", "b", "c")
    stage["a"].changing = "a change to --fast"
    stage["b"].warming = WarmUp(stage.now)
    stage.tick()
    other = fleet("a", "b", "c")
    hand_over(stage, other, "follow")
    other.tick(leading=False)
    assert [other[name].state for name in "abc"] == [State.DRAINING, State.STARTING, State.READY]
    assert other.fleet.reason(other["a"]).startswith("a change to --fast: ")
    assert other["b"].reason == "warming"
    other.tick()
    assert [other[name].state for name in "abc"] == [State.READY] * 3
