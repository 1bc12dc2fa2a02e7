"""Runs of cells: one policy, one seed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from bench.policy import figures, scenarios
from bench.policy.job import Job
from bench.policy.policies import KNOWN
from bench.policy.scenarios import COARSE_FROM, COARSE_MS, Cell
from bench.policy.server import Server
from bench.policy.simulation import Simulation


@dataclass(frozen=True)
class Run:
    """What is to be run. `rate` and `count` replace the cell's; `clients` > 0: in a closed loop; `step_ms`:
    see `Simulation`, None: by the number of servers."""

    cell: str
    policy: str
    seed: int
    rate: float | None = None
    count: int | None = None
    clients: int = 0
    step_ms: float | None = None


Watch = Callable[[float, Sequence[Server]], None]


def _simulate(run: Run, watch: Watch | None) -> tuple[list[Job], list[Server], Cell, float]:
    """Run one: its requests and servers as they ended, the cell, and the seconds of CPU that it took."""
    known = scenarios.load()
    cell = known.cells[run.cell]
    jobs, _ = known.jobs(cell, run.seed, count=run.count, rate=run.rate)
    servers = known.servers(cell)
    policy = KNOWN[run.policy]
    policy.prepare(jobs, run.seed)
    router = policy.router(servers, run.seed)
    step = run.step_ms
    if step is None:
        step = COARSE_MS if len(servers) >= COARSE_FROM else 0.0
    began = time.process_time()
    Simulation(
        jobs, servers, router, delay_ms=cell.delay_ms, step_ms=step, watch=watch, clients=run.clients
    ).run()
    return jobs, servers, cell, time.process_time() - began


def execute(run: Run) -> dict[str, Any]:
    """The figures of one run."""
    jobs, servers, cell, took = _simulate(run, None)
    return figures.of_run(jobs, servers, cell.goals()) | {"per_minute": 60 * len(jobs) / took}


def jobs_of(run: Run, watch: Watch | None = None) -> list[Job]:
    """The requests of one run as they ended."""
    return _simulate(run, watch)[0]
