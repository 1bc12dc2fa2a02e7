"""The backends of the snapshot, put together."""

from __future__ import annotations

from time import thread_time

import pytest
from structlog.testing import capture_logs

from sidecar.control import fleet as fleet_module
from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import CardReading, EngineReading, ModelsReading, Total
from tokenweir.config.models import BackendConfig
from tokenweir.contract.records import BackendLoad, Lease, Role, State

LONGEST = 600_000.0


def lease(**backends):
    loads = {name: BackendLoad(n=n) for name, n in backends.items()}
    return Lease(id="g1", time_ms=1, sequence=1, backends=loads).dump()


@pytest.fixture
def gateways() -> Gateways:
    return Gateways()


@pytest.fixture
def fleet(gateways) -> Fleet:
    made = Fleet(gateways)
    made.set_members(
        [BackendConfig(id="a", url="http://10.0.0.1:8000"), BackendConfig(id="b", url="http://b:1")],
        set(),
    )
    made.members["a"].address = "10.0.0.1"
    return made


def serve(fleet, backend_id="a", at=1000.0, **reading):
    member = fleet.members[backend_id]
    values = {"running": 1, "waiting": 0, "kv_use": 0.25, "capacity": 1000, "movement": (at,)} | reading
    member.record.engine = EngineReading(at=at, source="vllm", **values)
    member.record.models = ModelsReading(at=at, source="/v1/models", names=("m",))
    member.record.engine_kind = "vllm"
    return fleet.observe(backend_id, Look.OK, "", at)


def test_a_backend_that_serves_is_told_with_all_that_is_known(fleet):
    assert serve(fleet)
    (backend,) = fleet.decide(1200)
    assert (backend.id, backend.host, backend.port, backend.state) == ("a", "10.0.0.1", 8000, State.READY)
    assert (backend.memory, backend.memory_age_ms, backend.load, backend.load_age_ms) == (0.25, 200, 1, 200)
    assert (backend.low, backend.high) == (pytest.approx(90), pytest.approx(22.5))
    assert (backend.capacity, backend.models, backend.engine) == (1000, {"m": "m"}, "vllm")
    assert any(reason.startswith("state: ready") for reason in backend.reasons)


def test_an_engine_that_keeps_requests_waiting_is_told_with_what_it_runs(fleet):
    serve(fleet, at=1000.0, running=12, waiting=3, kv_use=0.95)
    assert fleet.decide(1100)[0].lets_in is None
    serve(fleet, at=1500.0, running=9, waiting=6, kv_use=0.95)
    (backend,) = fleet.decide(1600)
    assert backend.lets_in == 12
    assert any(reason.startswith("full: the engine keeps 6") for reason in backend.reasons)
    serve(fleet, at=2000.0, running=9, waiting=0, kv_use=0.6)
    assert fleet.decide(2100)[0].lets_in is None


@pytest.mark.parametrize(("throttled", "slower"), [((), False), (("heat",), True)])
def test_a_slow_engine_without_work_is_taken_for_usual_again_unless_its_card_is_held_back(
    fleet, throttled, slower
):
    member = fleet.members["a"]
    start, _ = member.cost.of(member.hardware(fleet.models))
    for k in range(60):
        tokens = 100 * k
        gaps = Total(tokens * 8 * start.base, tokens)
        steps = Total(tokens, tokens / 4)
        serve(fleet, at=500.0 * k, running=4, output_tokens=tokens, inter_token=gaps, steps=steps)
        member.cost.observe(member.record, 1000, 500.0 * k)
    long_after = 30_000.0 + 30 * 60_000
    member.record.card = CardReading(at=long_after, source="dcgm", throttled=throttled)
    (backend,) = fleet.decide(long_after)
    assert (backend.cost.base > 2 * start.base) is slower


def test_a_backend_whose_name_does_not_resolve_is_left_out(fleet):
    assert [backend.id for backend in fleet.decide(0)] == ["a"]
    fleet.members["b"].address = "10.0.0.2"
    assert [backend.id for backend in fleet.decide(0)] == ["a", "b"]


def test_configured_models_win_over_listed_ones(gateways):
    fleet = Fleet(gateways)
    fleet.set_members([BackendConfig(id="a", url="http://10.0.0.1:1", models={"public": "engine"})], set())
    serve(fleet)
    assert fleet.members["a"].models() == {"public": "engine"}


def test_a_drained_backend_is_draining_and_comes_back(fleet, gateways):
    serve(fleet)
    configs = [member.config for member in fleet.members.values()]
    gateways.update([lease(a=2)])
    fleet.set_members(configs, {"a"})
    (backend,) = fleet.decide(1200)
    assert backend.state is State.DRAINING
    assert backend.reasons[0] == "state: draining: 2 requests still run"
    assert fleet.reason(fleet.members["a"]) == "draining: 2 requests still run"
    fleet.set_members(configs, set())
    assert fleet.decide(1200)[0].state is State.READY


def test_a_removed_backend_drains_and_goes_when_it_is_empty(fleet, gateways, monkeypatch):
    monkeypatch.setattr(fleet_module, "LEAVING_LEAST_MS", 0)
    serve(fleet)
    gateways.update([lease(a=1)])
    fleet.set_members([], set())
    fleet.sweep(LONGEST)
    assert fleet.members["a"].state is State.DRAINING
    gateways.update([lease()])
    assert "a" in fleet.sweep(LONGEST)
    assert "a" not in fleet.members


def test_a_removed_backend_goes_when_its_drain_takes_too_long(fleet, gateways, monkeypatch):
    serve(fleet)
    gateways.update([lease(a=2)])
    fleet.set_members([], set())
    due = fleet.members["a"].leaving_since + LONGEST
    monkeypatch.setattr(fleet_module, "monotonic_ms", lambda: due - 1)
    assert "a" not in fleet.sweep(LONGEST)
    monkeypatch.setattr(fleet_module, "monotonic_ms", lambda: due + 1)
    assert "a" in fleet.sweep(LONGEST)


def test_a_removed_backend_stays_a_moment_even_when_empty(fleet, gateways):
    serve(fleet)
    gateways.update([lease()])
    fleet.set_members([], set())
    assert fleet.sweep(LONGEST) == []


def test_another_address_is_another_backend(fleet):
    serve(fleet)
    fleet.set_members([BackendConfig(id="a", url="http://10.0.0.9:8000")], set())
    assert fleet.members["a"].state is State.STARTING


def test_a_changed_weight_keeps_it_in_rotation(fleet):
    serve(fleet)
    fleet.set_members([BackendConfig(id="a", url="http://10.0.0.1:8000", weight=3, role="standby")], set())
    (backend,) = [backend for backend in fleet.decide(1200) if backend.id == "a"]
    assert (backend.state, backend.weight, backend.role) == (State.READY, 3, Role.STANDBY)


def test_a_change_of_state_is_an_event_with_its_reason(fleet):
    serve(fleet)
    fleet.observe("a", Look.REFUSED, "connection refused", 2000)
    assert not fleet.observe("unknown", Look.OK, "", 2000)
    assert fleet.observe("a", Look.REFUSED, "connection refused", 2500)
    assert [(event.before, event.after) for event in fleet.events] == [
        ("starting", "ready"),
        ("ready", "down"),
    ]
    assert fleet.events[-1].reason == "connection refused"


def test_a_closed_port_is_told_at_the_first_look_that_meets_it(fleet):
    serve(fleet)
    assert not fleet.decide(1500)[0].refused
    fleet.observe("a", Look.REFUSED, "connection refused", 2000)
    (backend,) = fleet.decide(2000)
    assert (backend.state, backend.refused) == (State.READY, True)
    serve(fleet, at=2500)
    assert not fleet.decide(2500)[0].refused


def test_one_that_is_down_for_being_late_is_told_as_such(fleet):
    serve(fleet)
    fleet.observe("a", Look.LATE, "no answer", 4000)
    assert not fleet.decide(4000)[0].late, "still in rotation"
    fleet.observe("a", Look.LATE, "no answer", 5000)
    (backend,) = fleet.decide(5000)
    assert (backend.state, backend.late, backend.refused) == (State.DOWN, True, False)
    fleet.members["a"].held_out = "a GPU is out"
    assert not fleet.decide(5000)[0].late, "it must get nothing, for another reason"
    fleet.members["a"].held_out = None
    fleet.observe("a", Look.REFUSED, "connection refused", 6000)
    assert not fleet.decide(6000)[0].late


def test_old_load_is_not_told(fleet):
    serve(fleet, at=0)
    (backend,) = fleet.decide(20_000)
    assert (backend.load, backend.load_age_ms, backend.memory) == (None, None, None)


def test_foreign_load_is_what_the_gateways_do_not_lease(fleet, gateways):
    gateways.update([lease(a=1)])
    for at in range(3):
        serve(fleet, at=float(at), running=4)
    assert fleet.decide(3)[0].foreign.requests == 3


def test_a_fleet_of_256_is_decided_in_a_small_part_of_a_tick(gateways):
    fleet = Fleet(gateways)
    fleet.set_members(
        [BackendConfig(url=f"http://10.0.{n // 250}.{n % 250 + 1}:8000") for n in range(256)], set()
    )
    for backend_id, member in fleet.members.items():
        member.address = member.config.host
        serve(fleet, backend_id)
    fleet.decide(1200)
    best = float("inf")
    for _ in range(20):
        began = thread_time()
        assert len(fleet.decide(1200)) == 256
        best = min(best, thread_time() - began)
    assert best < 0.05, "seconds of CPU"


def test_who_tells_no_memory_use_has_no_score(fleet):
    serve(fleet, kv_use=None)
    (backend,) = fleet.decide(1200)
    assert (backend.memory, backend.low, backend.high) == (None, None, None)


def test_a_backend_whose_figures_fit_no_snapshot_is_told_without_them(fleet, monkeypatch):
    fleet.members["b"].address = "10.0.0.2"
    serve(fleet, "a")
    serve(fleet, "b")
    monkeypatch.setattr(fleet.members["a"].progress, "age_ms", lambda *_: float("nan"))
    with capture_logs() as lines:
        first, second = fleet.decide(1100)
        fleet.decide(1200)
    assert (first.id, first.state, first.models) == ("a", State.READY, {"m": "m"})
    assert (second.id, second.memory) == ("b", 0.25)
    assert "its figures cannot be published" in " ".join(first.reasons)
    assert [line["event"] for line in lines] == ["backend_figures_refused"]


def test_a_look_newer_than_the_moment_that_is_decided_for_is_told_as_of_now(fleet):
    serve(fleet, at=1000.0)
    (backend,) = fleet.decide(990)
    assert (backend.memory, backend.memory_age_ms, backend.load_age_ms) == (0.25, 0, 0)
