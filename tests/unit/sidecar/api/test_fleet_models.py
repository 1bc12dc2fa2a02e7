"""What is out of the ordinary with a model, in short."""

from __future__ import annotations

from sidecar.api.fleet_models import FleetModel, fleet_model
from sidecar.telemetry.health import Look
from tests.unit.sidecar.control.scene import Scene, fleet
from tokenweir.contract.records import QueueState

LITERAL = {"rule": "literal", "hold": "1s"}


def seen(stage: Scene, known: bool = True, fallback: str | None = None) -> FleetModel:
    return fleet_model(stage.loop.models["m"], known, fallback)


def test_where_all_is_as_usual_nothing_is_told() -> None:
    model = seen(fleet("a", "b"))
    assert (model.level, model.burst, model.waiting, model.longest_wait_ms) == (0, False, 0, None)
    assert model.unusual == ""


def test_the_levels_that_hold_are_told_with_their_reasons_and_who_waits() -> None:
    stage = fleet("a", breaker=LITERAL)
    stage.use["a"] = 0.97
    stage.queue = QueueState(depth=3, oldest_ms=2300)
    stage.run(1)
    model = seen(stage)
    assert model.level == 2
    assert [reason.split(":")[0] for reason in model.level_reasons] == ["level 1", "level 2"]
    assert (model.waiting, model.longest_wait_ms) == (3, 2300)
    for words in ("new sessions are refused", "low priority is dropped", "3 waiting, the longest for 2.3 s"):
        assert words in model.unusual


def test_who_waits_is_not_known_while_the_gateways_cannot_be_asked() -> None:
    stage = fleet("a")
    stage.queue = QueueState(depth=3, oldest_ms=2300)
    stage.run(1)
    model = seen(stage, known=False)
    assert (model.waiting, model.longest_wait_ms, model.unusual) == (None, None, "")


def test_burst_mode_is_told_with_its_reason() -> None:
    stage = fleet("a", burst={"rule": "literal"})
    for _ in range(120):
        stage.arrivals += 20
        stage.tick()
    for _ in range(10):
        stage.arrivals += 400
        stage.tick()
    model = seen(stage)
    assert model.burst
    assert model.burst_reason.startswith("burst: ")
    assert model.burst_reason in model.unusual


def test_the_model_that_answers_in_its_place_is_named() -> None:
    stage = Scene(
        backends=[
            {"id": "a", "url": "http://a:1"},
            {"id": "f", "url": "http://f:1", "models": ["small"], "role": "fallback"},
        ],
        models=[{"name": "m", "fallback": "small"}],
    )
    stage.run(2)
    stage.looks["a"] = Look.REFUSED
    stage.run(3)
    model = seen(stage, fallback="small")
    assert (model.level, model.fallback) == (4, "small")
    assert "level 4: 0 of 1 backends are usable" in model.unusual
    assert model.unusual.endswith("with small")


def test_a_restart_for_want_of_memory_is_level_3() -> None:
    stage = fleet("a", "b")
    stage["a"].failures.said_out_of_memory(stage.now)
    stage.run(1)
    model = seen(stage)
    assert model.level == 3
    assert "being restarted for want of memory" in model.unusual
