"""The control loop over a whole fleet."""

from __future__ import annotations

import json

import pytest

from sidecar.control.alerts import Kind
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import XidEvent
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
