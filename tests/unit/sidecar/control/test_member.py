"""A backend's state, role and models as they are published."""

from __future__ import annotations

import pytest

from sidecar.control.member import Member
from sidecar.control.warm_up import WarmUp
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import EngineReading, ModelsReading, Record
from tokenweir.config.models import BackendConfig
from tokenweir.contract.records import Role, State


def member(**config):
    return Member(BackendConfig.model_validate({"url": "http://10.0.0.1:8000", **config}), Record())


@pytest.fixture
def ready():
    made = member()
    made.look(Look.OK, "", 0)
    assert made.state is State.READY
    return made


def test_one_that_is_down_is_down_though_somebody_drains_it(ready):
    ready.draining = True
    assert ready.state is State.DRAINING
    for now in (1, 2):
        ready.look(Look.REFUSED, "connection refused", now)
    assert (ready.state, ready.reason) == (State.DOWN, "connection refused")


def test_one_that_is_held_out_is_down_though_it_answers(ready):
    ready.held_out = "its GPU was taken out"
    assert (ready.state, ready.reason) == (State.DOWN, "its GPU was taken out")


@pytest.mark.parametrize(
    "wish", [{"draining": True}, {"leaving_since": 5.0}, {"changing": "other arguments"}]
)
def test_whoever_wants_it_empty_it_drains(ready, wish):
    for name, value in wish.items():
        setattr(ready, name, value)
    assert (ready.drains, ready.state) == (True, State.DRAINING)


def test_while_it_is_warmed_it_starts(ready):
    ready.warming = WarmUp(0)
    assert ready.state is State.STARTING
    ready.warming = None
    assert ready.state is State.READY


def test_only_one_that_took_too_long_to_answer_is_late(ready):
    for now in (1, 2):
        ready.look(Look.LATE, "no answer within 2 s", now)
    assert (ready.state, ready.late, ready.absent) == (State.DOWN, True, True)
    ready.look(Look.REFUSED, "connection refused", 3)
    assert (ready.late, ready.refused) == (False, True)


def test_a_promoted_spare_serves_like_any_other():
    spare = member(role="standby")
    assert spare.role is Role.STANDBY
    spare.promoted = True
    assert spare.role is Role.ACTIVE


def test_its_models_are_those_configured_else_those_that_the_engine_lists():
    told = ModelsReading(at=0, source="/v1/models", names=("org/m",))
    configured, asked = member(models={"m": "org/m"}), member()
    configured.record.models = asked.record.models = told
    assert configured.models() == {"m": "org/m"}
    assert asked.models() == {"org/m": "org/m"}
    assert member().models() == {}


def test_those_of_one_group_or_of_the_same_models_are_restarted_one_at_a_time():
    assert member(group="rack-1").group() == "rack-1"
    assert member(models=["b", "a"]).group() == member(models=["a", "b"]).group() == "a b"
    assert member(id="gpu-a").group() == "gpu-a"


def test_an_engine_that_comes_up_while_it_is_watched_has_arrived(ready):
    ready.arrived_at = None
    ready.look(Look.LOADING, "/health answers 503", 1000)
    assert ready.arrived_at is None
    ready.look(Look.OK, "", 2000)
    assert ready.arrived_at == 2000


def test_one_that_served_when_the_sidecar_started_has_not_arrived_a_new_one_has():
    old, new = member(), member()
    old.there_at_start = True
    for made in (old, new):
        made.look(Look.OK, "", 500)
    assert (old.arrived_at, new.arrived_at) == (None, 500)


def test_an_engine_whose_counters_began_anew_between_two_looks_has_arrived(ready):
    ready.arrived_at = None
    for now, output in ((1000, 500), (1500, 900), (2000, 20)):
        ready.record.engine = EngineReading(at=now, source="vllm", output_tokens=output)
        ready.look(Look.OK, "", now)
    assert (ready.arrived_at, ready.renewed_at) == (2000, 2000)
