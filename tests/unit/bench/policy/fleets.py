"""Small fleets and workloads for the tests of the simulator."""

from __future__ import annotations

import random

from bench.policy.job import Job, Prediction
from bench.policy.routing import Router
from bench.policy.server import Server, ServerSpec
from bench.policy.simulation import Simulation
from emulator.engine import Exhaustion


def servers(count: int = 3, kind: Exhaustion = Exhaustion.PREEMPT, capacity: int = 16_000) -> list[Server]:
    """Equal servers."""
    return [Server(ServerSpec(kind=kind, capacity=capacity, restart_ms=5000)) for _ in range(count)]


def jobs(count: int = 200, rate: float = 3.0, seed: int = 1) -> list[Job]:
    """Random requests, `rate` a second, each with its true length as prediction."""
    rng, at = random.Random(seed), 0.0
    found = []
    for number in range(count):
        at += rng.expovariate(rate) * 1000
        output = rng.randint(5, 400)
        job = Job(number, at, rng.randint(50, 3000), output, key=f"k{number % 3}")
        job.prediction = Prediction(output, output, output, 0)
        found.append(job)
    return found


def run(asked: list[Job], fleet: list[Server], router: Router, **options: float) -> Simulation:
    """Run to the end."""
    simulation = Simulation(asked, fleet, router, **options)  # type: ignore[arg-type]
    simulation.run()
    return simulation
