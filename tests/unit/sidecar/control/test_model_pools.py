"""The decisions of each model over its backends."""

from __future__ import annotations

import json

import pytest
from structlog.testing import capture_logs

from sidecar.control.alerts import Kind
from sidecar.control.model import ModelDecisions
from sidecar.telemetry.health import Look
from tests.unit.sidecar.control.scene import Scene, fleet, warmed
from tokenweir.contract.records import QueueState, Role, State


def test_memory_that_stays_full_with_a_spent_queue_raises_the_level_and_says_when_to_come_back():
    stage = fleet("a", "b")
    stage.use = {"a": 0.94, "b": 0.92}
    stage.queue = QueueState(depth=10, oldest_ms=20_000, oldest_by_priority={"normal": 20_000})
    stage.run(5)
    assert stage.control().level == 0
    stage.run(1.5)
    control = stage.control()
    assert (control.level, control.refuse_new, control.drop_low) == (1, True, False)
    assert control.retry_after_ms >= 1000
    assert control.load == pytest.approx(0.93)
    assert "threshold 90%" in control.reasons[0]


def test_the_log_tells_when_a_level_begins_and_ends_and_why():
    stage = fleet("a", "b")
    with capture_logs() as lines:
        stage.use = {"a": 0.97, "b": 0.97}
        stage.queue = QueueState(depth=10, oldest_ms=20_000, oldest_by_priority={"normal": 20_000})
        stage.run(10)
        stage.use, stage.queue = {"a": 0.2, "b": 0.2}, None
        stage.run(30)
    told = [(line["event"], line["model"], line["mode"]) for line in lines if "mode" in line]
    assert told == [
        ("mode_began", "m", "level 1"),
        ("mode_began", "m", "level 2"),
        ("mode_ended", "m", "level 1"),
        ("mode_ended", "m", "level 2"),
    ]
    began, ended = lines[0]["reason"], lines[-1]["reason"]
    assert "new sessions are refused: memory use 97%" in began
    assert "memory use 20% over 2 of 2 backends" in ended


def test_the_log_tells_of_burst_mode_and_of_the_fallback():
    model = ModelDecisions()
    assert model.modes() == {}
    model.burst.mode.restore(True, 0.0)
    model.quorum.fallback.restore(True, 0.0)
    assert list(model.modes()) == ["level 4", "burst"]


def test_a_model_s_level_is_its_own():
    stage = Scene(
        backends=[
            {"id": "a", "url": "http://a:1"},
            {"id": "b", "url": "http://b:1", "models": ["other"]},
        ]
    )
    stage.queue = QueueState(depth=10, oldest_ms=20_000, oldest_by_priority={"low": 20_000})
    stage.use = {"a": 0.97, "b": 0.1}
    stage.run(8)
    assert (stage.control().level, stage.control("other").level) == (2, 0)


def test_the_quorum_sends_a_model_to_its_fallback_and_back():
    stage = Scene(
        backends=[
            *({"id": name, "url": f"http://{name}:1"} for name in "abcd"),
            {"id": "small", "url": "http://small:1", "models": {"tiny": "tiny-llm"}, "role": "fallback"},
        ],
        models=[{"name": "m", "fallback": "tiny"}],
    )
    stage.run(2)
    assert stage.published()["small"].models == {"tiny": "tiny-llm", "m": "tiny-llm"}
    for name in "abc":
        stage.looks[name] = Look.REFUSED
    stage.run(1)
    assert (stage.control().level, stage.control().fallback) == (4, True)
    assert (Kind.FALLBACK, "m") in stage.loop.alerts.standing
    for name in "abc":
        stage.looks[name] = Look.OK
    stage.run(20)
    assert (stage.control().level, stage.control().fallback) == (0, False)
    assert stage.loop.alerts.standing == {}


def test_a_spare_in_service_stands_in_for_a_backend_that_is_down_and_is_never_expected():
    stage = Scene(
        backends=[
            *({"id": name, "url": f"http://{name}:1"} for name in "abc"),
            {"id": "s", "url": "http://s:1", "role": "standby"},
            {"id": "small", "url": "http://small:1", "models": {"tiny": "tiny"}, "role": "fallback"},
        ],
        models=[{"name": "m", "fallback": "tiny"}],
        breaker={"quorum": 0.6},
    )
    stage.run(2)
    stage["s"].promoted = True
    stage.looks["a"] = stage.looks["b"] = Look.REFUSED
    stage.run(2)
    load = stage.loop.models["m"].load
    assert (load.usable, load.expected, stage.control().fallback) == (2, 3, False)
    stage.looks["s"] = Look.REFUSED
    stage.run(2)
    assert (stage.control().level, stage.control().fallback) == (4, True)
    assert "1 of 3 backends are usable, fewer than 60%" in " ".join(stage.control().reasons)


def test_a_promoted_spare_ends_the_fallback():
    stage = Scene(
        backends=[
            *({"id": name, "url": f"http://{name}:1"} for name in "ab"),
            {"id": "s", "url": "http://s:1", "role": "standby"},
            {"id": "small", "url": "http://small:1", "models": {"tiny": "tiny"}, "role": "fallback"},
        ],
        models=[{"name": "m", "fallback": "tiny"}],
    )
    stage.run(2)
    stage.looks["a"] = stage.looks["b"] = Look.REFUSED
    stage.run(1)
    assert stage.control().fallback
    stage.run(120, until=lambda: stage["s"].warming is not None)
    warmed(stage, "s")
    stage.run(10)
    assert stage["s"].promoted
    assert (stage.loop.models["m"].load.expected, stage.control().fallback) == (2, False)


def test_a_backend_says_that_another_variant_is_preferred_to_its_own():
    stage = Scene(
        backends=[
            {"id": "a", "url": "http://a:1", "precision": "fp16"},
            {"id": "b", "url": "http://b:1", "precision": "int4"},
        ]
    )
    stage.run(2)
    reasons = {name: " ".join(backend.reasons) for name, backend in stage.published().items()}
    assert "precision: int4; requests for m prefer fp16" in reasons["b"]
    assert "prefer" not in reasons["a"]


def test_a_drained_or_new_backend_is_not_missed():
    stage = Scene(
        backends=[
            *({"id": name, "url": f"http://{name}:1"} for name in "abc"),
            {"id": "small", "url": "http://small:1", "role": "fallback"},
        ]
    )
    stage.looks["b"] = stage.looks["c"] = Look.LOADING
    stage.run(5)
    assert not stage.control().fallback


def spares():
    stage = Scene(
        backends=[
            {"id": "a", "url": "http://a:1"},
            {"id": "s", "url": "http://s:1", "role": "standby"},
        ],
        standby={"stop": True, "idle": "60s"},
    )
    stage.looks["s"] = Look.REFUSED
    stage.run(2)
    return stage


def test_a_stopped_spare_is_started_warmed_and_ramped_when_the_load_calls_for_it():
    stage = spares()
    assert stage.published()["s"].role is Role.STANDBY
    stage.use["a"] = 0.8
    assert stage.run(5) == [("start", "s")]
    stage.looks["s"] = Look.LOADING
    stage.run(5)
    stage.looks["s"] = Look.OK
    assert stage.run(2) == [("warm", "s")]
    warmed(stage, "s")
    stage.tick()
    backend = stage.published()["s"]
    assert (backend.role, backend.state, backend.admit) == (
        Role.ACTIVE,
        State.READY,
        pytest.approx(0.05, rel=0.1),
    )


def test_it_goes_back_and_is_stopped_when_the_load_is_gone():
    stage = spares()
    stage.use["a"] = 0.8
    stage.looks["s"] = Look.OK
    stage.run(10)
    stage.use = {"a": 0.2, "s": 0.0}
    assert ("stop", "s") in stage.run(70)
    assert stage.published()["s"].role is Role.STANDBY


def test_a_spare_that_was_stopped_is_not_restarted_as_if_it_had_crashed():
    stage = spares()
    stage.use["a"], stage.looks["s"] = 0.8, Look.OK
    stage.run(10)
    stage.use = {"a": 0.2, "s": 0.0}
    assert ("stop", "s") in stage.run(70)
    stage.looks["s"] = Look.REFUSED
    assert stage.run(60) == []
    assert stage.loop.alerts.standing == {}


def test_a_start_that_fails_is_told_and_tried_again_until_the_spare_serves():
    stage = spares()
    stage.use["a"] = 0.8
    assert stage.run(5) == [("start", "s")]
    stage.loop.pools.started("s", False, "no such container", stage.now)
    assert stage.loop.alerts.standing[Kind.START_FAILED, "s"].page
    assert stage.run(9) == []
    assert stage.run(2) == [("start", "s")]
    stage.loop.pools.started("s", True, "started", stage.now)
    stage.looks["s"] = Look.LOADING
    stage.run(2)
    stage.looks["s"] = Look.OK
    assert stage.run(2) == [("warm", "s")]
    assert stage.loop.alerts.standing == {}


def test_where_one_spare_cannot_be_started_another_is_promoted():
    stage = Scene(
        backends=[
            {"id": "a", "url": "http://a:1"},
            *(
                {"id": name, "url": f"http://{name}:1", "role": "standby", "kv_capacity": 10_000}
                for name in "st"
            ),
        ]
    )
    stage.looks["s"] = stage.looks["t"] = Look.REFUSED
    stage.use["a"] = 0.8
    ((_, first),) = stage.run(10)
    assert stage.run(20) == []
    stage.loop.pools.started(first, False, "no such container", stage.now)
    second = "s" if first == "t" else "t"
    assert ("start", second) in stage.run(5)


def test_the_next_leader_starts_a_promoted_spare_that_is_not_there():
    stage = spares()
    stage.use["a"] = 0.8
    assert stage.run(5) == [("start", "s")]
    other = spares()
    other.use["a"] = 0.8
    other.loop.restore(json.loads(json.dumps(stage.loop.dump(stage.now))), other.now)
    assert other.run(5) == [("start", "s")]


def test_a_promoted_spare_that_falls_is_restarted_not_started():
    stage = spares()
    stage.use["a"], stage.looks["s"] = 0.8, Look.OK
    stage.run(10)
    stage.looks["s"] = Look.REFUSED
    assert stage.run(5) == [("restart", "s")]


def test_burst_mode_begins_between_two_ticks():
    stage = fleet("a")
    for _ in range(120):
        stage.arrivals += 20
        stage.tick()
    stage.queue = QueueState(depth=3, oldest_ms=10)
    stage.tick()
    stage.arrivals += 100
    for _ in range(2):
        stage.tick()
        stage.arrivals += 100
    assert stage.control().burst


def test_a_spare_that_was_held_out_for_a_while_goes_back_too():
    stage = spares()
    stage.use["a"], stage.looks["s"] = 0.8, Look.OK
    stage.run(10)
    assert stage["s"].promoted
    stage["s"].draining = True
    stage.run(2)
    stage["s"].draining = False
    stage.use = {"a": 0.2, "s": 0.0}
    assert ("stop", "s") in stage.run(70)
    assert not stage["s"].promoted


def test_a_stop_that_fails_is_ordered_again_unless_the_spare_is_wanted():
    stage = spares()
    stage.use["a"], stage.looks["s"] = 0.8, Look.OK
    stage.run(10)
    stage.use = {"a": 0.2, "s": 0.0}
    stage.run(70, until=lambda: not stage["s"].promoted)
    stage.loop.pools.stopped("s", False, stage.now)
    assert stage.run(50) == []
    assert stage.run(15) == [("stop", "s")]
    stage.loop.pools.stopped("s", True, stage.now)
    assert stage.run(120) == []


def test_the_next_leader_stops_a_spare_that_went_back():
    stage = spares()
    stage.use["a"], stage.looks["s"] = 0.8, Look.OK
    stage.run(10)
    stage.use = {"a": 0.2, "s": 0.0}
    stage.run(70, until=lambda: not stage["s"].promoted)
    other = spares()
    other.looks["s"] = Look.OK
    other.run(2)
    other.loop.restore(json.loads(json.dumps(stage.loop.dump(stage.now))), other.now)
    assert other.run(5) == [("stop", "s")]


def test_one_that_is_no_spare_any_more_is_not_promoted():
    stage = spares()
    stage.use["a"], stage.looks["s"] = 0.8, Look.OK
    stage.run(10)
    assert stage["s"].promoted
    stage.fleet.set_members(
        [stage["a"].config, stage["s"].config.model_copy(update={"role": Role.ACTIVE})], set()
    )
    assert not stage["s"].promoted


def test_who_does_not_lead_promotes_nobody_and_tells_nothing():
    stage = spares()
    stage.looks["s"] = Look.OK
    stage.use["a"] = 0.8
    for _ in range(30):
        stage.tick(leading=False)
    assert not stage["s"].promoted
    assert len(stage.loop.models["m"].spares.promoted) <= 1
    assert stage.loop.alerts.standing == {}
