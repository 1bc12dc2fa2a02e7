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
