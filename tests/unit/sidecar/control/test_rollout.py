"""New engines come into rotation."""

from __future__ import annotations

import pytest

from sidecar.telemetry.health import Look
from tests.unit.sidecar.control.scene import Scene, fleet, warmed
from tokenweir.contract.records import Completion, QueueState, State


def test_backends_that_serve_when_the_sidecar_starts_are_not_new():
    stage = fleet("a", "b")
    assert [backend.admit for backend in stage.published().values()] == [1, 1]


def test_one_that_comes_later_is_new():
    stage = fleet("a", "b")
    configs = [
        *stage.config.backends,
        stage.config.backends[0].model_copy(update={"id": "c", "url": "http://c:1"}),
    ]
    stage.fleet.set_members(configs, set())
    stage["c"].address = "10.0.0.9"
    stage.use["c"], stage.tokens["c"], stage.looks["c"] = 0.0, 0.0, Look.OK
    assert stage.run(1) == [("warm", "c")]
    warmed(stage, "c")
    stage.run(60)
    assert stage.published()["c"].admit == pytest.approx(0.10, rel=0.05)


def test_where_nobody_else_serves_there_is_no_ramp():
    stage = Scene(backends=[{"id": "a", "url": "http://a:1"}])
    stage.looks["a"] = Look.LOADING
    stage.run(3)
    stage.looks["a"] = Look.OK
    assert stage.run(2) == []
    assert stage.published()["a"].admit == 1


def test_where_all_are_new_all_are():
    stage = fleet("a", "b", ramp={"warm_up": 0})
    stage["a"].ramp.begin(stage.config.ramp, stage.now)
    stage["b"].ramp.begin(stage.config.ramp, stage.now)
    stage.tick()
    assert [backend.admit for backend in stage.published().values()] == [1, 1]


def test_a_ramp_hurries_while_requests_wait_and_pauses_while_it_does_worse():
    stage = fleet("a", "b", ramp={"warm_up": 0})
    stage["a"].ramp.begin(stage.config.ramp, stage.now)
    stage.queue = QueueState(depth=1, oldest_ms=10)
    stage.run(30)
    assert stage["a"].ramp.share == pytest.approx(0.05 + 0.3, rel=0.05)
    stage.queue = None
    for backend, ttft in (("a", 900), ("b", 100)):
        for _ in range(10):
            record = Completion(
                id="r",
                gateway="g",
                time_ms=1,
                model="m",
                backend=backend,
                kind="chat",
                outcome="ok",
                stream=True,
                ttft_ms=ttft,
            )
            stage.loop.completed(record, stage.now, stage.now)
    before = stage["a"].ramp.share
    stage.run(30)
    assert stage["a"].ramp.share == before
    assert "its peers' 100 ms" in stage["a"].ramp.reason


def test_the_failures_of_the_process_that_died_do_not_hold_the_next_one():
    stage = fleet("a", "b")
    stage.looks["a"] = Look.REFUSED
    stage.run(2)
    died = stage.now
    for name, outcome in (("a", "upstream_broke"), ("b", "ok")):
        for _ in range(6):
            told = Completion(
                id="r", gateway="g", time_ms=1, model="m", backend=name, kind="chat", outcome=outcome
            )
            stage.loop.completed(told, died, stage.now)
    stage.loop.recovery.restarted("a", True, "done", stage.now)
    stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
    assert ("warm", "a") in stage.run(3)
    warmed(stage, "a")
    stage.loop.completed(told.model_copy(update={"backend": "a", "outcome": "timeout"}), died, stage.now)
    stage.run(1)
    assert "held" not in stage["a"].ramp.reason
    assert stage["a"].ramp.share > stage.config.ramp.start


def test_a_warm_up_ends_where_the_last_of_the_others_goes():
    stage = fleet("a", "b")
    stage.looks["b"] = Look.LOADING
    stage.run(2)
    stage.looks["b"] = Look.OK
    assert stage.run(2) == [("warm", "b")]
    assert stage.published()["b"].state is State.STARTING
    stage.looks["a"] = Look.REFUSED
    stage.run(1.5)
    assert (stage.published()["b"].state, stage.published()["b"].admit) == (State.READY, 1)
