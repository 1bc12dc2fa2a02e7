"""A fleet under the control loop, whose engines a test moves tick by tick."""

from __future__ import annotations

import json

from sidecar.control.fleet import Fleet
from sidecar.control.gateways import Gateways
from sidecar.control.loop import ControlLoop
from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import EngineReading, ModelsReading
from tokenweir.config.loading import parse
from tokenweir.contract.records import Lease

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
    stage.loop.rollout.warmed(name, stage.config, stage.now)
