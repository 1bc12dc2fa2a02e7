"""The control loop over a whole fleet."""

from __future__ import annotations

import json

import pytest

from sidecar.control.alerts import Kind
from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.control.loop import ControlLoop
from sidecar.control.restart import Stage
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import ContainerReading, EngineReading, ModelsReading, XidEvent
from tokenweir.config.loading import parse
from tokenweir.contract.records import Completion, Lease, QueueState, Role, State

TICK = 500.0


class Scene:
    """A fleet whose engines a test moves, tick by tick."""

    def __init__(self, actuators=True, **config):
        text = {"backends": [], "models": [], **config}
        text["backends"] = [{"models": ["m"], **backend} for backend in text["backends"]]
        self.config = parse(json.dumps(text), "test", {})
        self.gateways = Gateways()
        self.fleet = Fleet(self.gateways)
        self.loop = ControlLoop(self.fleet, self.gateways, lambda _: actuators, lambda _: 100.0)
        self.fleet.set_models(self.config.models)
        self.fleet.set_members(self.config.backends, set())
        self.now = 0.0
        self.use = {backend.id: 0.2 for backend in self.config.backends}
        self.tokens = dict.fromkeys(self.use, 1000.0)
        self.looks = dict.fromkeys(self.use, Look.OK)
        self.queue = None
        self.arrivals = 0
        self.sequence = 0
        for member in self.fleet.members.values():
            member.address = "10.0.0.1"

    def __getitem__(self, backend):
        return self.fleet.members[backend]

    def tick(self, leading=True):
        """One look at every engine, one at the leases, one tick of the loop; returns the orders."""
        self.now += TICK
        self.sequence += 1
        for name, look in self.looks.items():
            member = self.fleet.members[name]
            if look is Look.OK:
                self.tokens[name] += 10
                member.record.answered_at = self.now
                member.record.engine = EngineReading(
                    at=self.now,
                    source="vllm",
                    running=1,
                    kv_use=self.use[name],
                    capacity=10_000,
                    output_tokens=self.tokens[name],
                )
                member.record.models = ModelsReading(at=self.now, source="/v1/models", names=("m",))
            self.fleet.observe(name, look, "as told", self.now)
        queue = {"m": self.queue} if self.queue else {}
        lease = Lease(id="g", time_ms=1, sequence=self.sequence, queue=queue, arrivals={"m": self.arrivals})
        self.gateways.update([lease.dump()])
        self.loop.leases_read(self.config, self.now)
        _, orders = self.loop.step(self.config, leading, self.now)
        return orders

    def run(self, seconds, until=lambda: False):
        """Ticks for so long, or until something holds; returns all restarts, starts, stops and warm-ups."""
        found = []
        for _ in range(int(seconds * 1000 / TICK)):
            orders = self.tick()
            found += [("restart", order.backend) for order in orders.restarts]
            found += [("start", name) for name in orders.starts]
            found += [("stop", name) for name in orders.stops]
            found += [("warm", name) for name in orders.warm_ups]
            if until():
                break
        return found

    def control(self, model="m"):
        return self.loop.published()[model]

    def published(self):
        return {backend.id: backend for backend in self.fleet.decide(self.now)}


def fleet(*names, **config):
    made = Scene(
        backends=[{"id": name, "url": f"http://10.0.0.{k}:1"} for k, name in enumerate(names)], **config
    )
    made.run(2)
    return made


def warmed(stage, name):
    stage.loop.warmed(name, stage.config, stage.now)


# Levels


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


# Restarts


def test_a_crashed_engine_is_out_within_a_second_restarted_warmed_and_ramped():
    stage = fleet("a", "b")
    stage.looks["a"] = Look.REFUSED
    stage.run(1)
    assert stage["a"].state is State.DOWN
    assert stage.run(2) == [("restart", "a")]
    stage.loop.restarted("a", True, "container restarted", stage.now)
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
    assert stage.loop.restarts.stage("a") is Stage.NONE


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
    assert stage.loop.completed(record, stage.now, stage.now)
    orders = stage.tick()
    assert [order.backend for order in orders.restarts] == ["a"]
    assert stage["a"].state is State.DOWN
    assert "out of memory" in stage["a"].reason
    assert stage.control().level == 3
    assert stage.loop.thresholds(stage.config, stage.now).z > stage.config.thresholds.z


def test_without_an_actuator_it_is_only_told():
    stage = fleet("a", "b", actuators=False)
    stage.looks["a"] = Look.REFUSED
    assert stage.run(5) == []
    assert (Kind.NO_ACTUATOR, "a") in stage.loop.alerts.standing
    stage.looks["a"] = Look.OK
    stage.run(3)
    assert stage.loop.alerts.standing == {}


def test_a_container_that_was_killed_for_memory_is_restarted():
    stage = fleet("a", "b")
    stage["a"].record.container = ContainerReading(
        at=stage.now, source="docker", state="exited", exit_code=137, oom_killed=True, ended_at=stage.now + 1
    )
    assert stage.run(0.5) == [("restart", "a")]
    assert "exit status 137" in stage["a"].reason


def test_of_one_model_two_crashed_backends_are_restarted_one_after_the_other():
    stage = fleet("a", "b", "c")
    stage.looks["a"] = stage.looks["b"] = Look.REFUSED
    assert stage.run(4) == [("restart", "a")]
    stage.loop.restarted("a", True, "done", stage.now)
    assert stage.run(4) == []
    stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
    assert ("restart", "b") in stage.run(4)


def test_after_its_restarts_of_an_hour_it_stays_out_and_somebody_is_called():
    stage = fleet("a", "b", restart={"most_per_hour": 1})
    for _ in range(2):
        stage.looks["a"] = Look.REFUSED
        stage.run(4)
        stage.loop.restarted("a", True, "done", stage.now)
        stage.looks["a"], stage.tokens["a"] = Look.OK, 0.0
        stage.run(4)
    stage.looks["a"] = Look.REFUSED
    stage.run(4)
    assert stage.loop.restarts.stage("a") is Stage.SPENT
    assert stage.loop.alerts.standing[Kind.RESTARTS_SPENT, "a"].page
    stage.looks["a"] = Look.OK
    stage.run(10)
    assert stage["a"].state is State.DOWN
    assert stage.loop.bring_back("a")
    stage.run(1)
    assert stage["a"].state in {State.READY, State.STARTING}


def test_a_restart_between_two_looks_is_seen_by_the_counters():
    stage = fleet("a", "b")
    stage.tokens["a"] = 0.0
    assert stage.run(1) == [("warm", "a")]


def test_what_answered_before_the_restart_was_done_does_not_end_it():
    stage = fleet("a", "b")
    assert stage.loop.order_restart("a", stage.now)
    assert not stage.loop.order_restart("a", stage.now)
    assert stage.run(0.5) == [("restart", "a")]
    stage.loop.restarted("a", True, "done", stage.now)
    stage.loop.step(stage.config, True, stage.now)
    assert stage.loop.restarts.stage("a") is Stage.AWAITED
    stage.tokens["a"] = 0.0
    stage.run(1)
    assert stage.loop.restarts.stage("a") is Stage.NONE


# GPUs


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
        assert stage.loop.bring_back("a")
        stage.run(0.5)
        assert stage["a"].state is State.READY


# Ramps


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


# Spares


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


# Burst


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


# Handing over


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
    from sidecar.clock import monotonic_ms

    stage = Scene(
        backends=[{"id": f"b{k}", "url": f"http://10.0.{k // 250}.{k % 250 + 1}:1"} for k in range(1000)]
    )
    stage.tick()
    stage.tick()
    best = float("inf")
    for _ in range(3):
        began = monotonic_ms()
        stage.loop.step(stage.config, True, stage.now)
        best = min(best, monotonic_ms() - began)
    assert best < 100
