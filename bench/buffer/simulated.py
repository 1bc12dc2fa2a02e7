"""`python -m bench.buffer.simulated`: the bench's overload in virtual time, a run in seconds and the same on
every machine. One gateway of one worker: the shipped queue and policy, on the policy bench's simulator. It
writes nothing."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from math import nan
from statistics import fmean
from typing import Any

from rich.table import Table

from bench import report
from bench.buffer import fleet
from bench.buffer.client import Answer, Hint
from bench.buffer.figures import of_run
from bench.buffer.overload import FULL, Load, Run, Sent
from bench.buffer.traffic import MODEL, Request, requests
from bench.policy.job import Job
from bench.policy.server import Server, ServerSpec
from bench.policy.simulation import Simulation
from bench.policy.tokenweir_router import Tokenweir
from emulator.engine import Exhaustion
from emulator.tokens import count

WARM_UP, PAUSE_S = Load(8, 6, 0), 10.0
MAX_WAIT_MS = 15_000.0
TEMPLATE_TOKENS = 8
"""What a chat of one message has besides its text."""
SHOWN = (
    "overload",
    "refused",
    "refused_at_once",
    "latency_mean",
    "flood_wait_p50",
    "eta_median_error",
    "eta_within_2x",
    "eta_told",
)


class Witness(Tokenweir):
    """The gateway, with what it tells of waits."""

    MOST_WAIT_MS = MAX_WAIT_MS

    def __init__(self, servers: Sequence[Server], seed: int, asked: Sequence[Request]) -> None:
        self._asked = asked
        self.told: dict[int, float | None] = {}
        """The first estimate of each that was let wait, ms; None: no rate was known."""
        super().__init__(servers, seed, "predictive")

    def asked(self, job: Job, now: float) -> None:
        """Nothing is trained: the running figures, and the client's own limit."""
        limit = json.loads(self._asked[job.number].body)["max_tokens"]
        self._lua_request(job.number, job.prompt, -1, -1, -1, -1, None, None, limit)

    def priority(self, job: Job) -> str:
        """The class that it asks for."""
        return self._asked[job.number].priority

    def doubts(self, job: Job, now: float) -> bool:
        """What it is told is noted."""
        hopeless, ms = self._gateway.doubt(job.number, now)
        if not hopeless:
            self.told.setdefault(job.number, ms)
        return bool(hopeless)


def _job(number: int, request: Request, at: float) -> Job:
    content = json.loads(request.body)["messages"][0]["content"]
    return Job(number, 1000 * at, count(content) + TEMPLATE_TOKENS, request.output, key=request.key)


def _sent(request: Request, job: Job, witness: Witness) -> Sent:
    answer = Answer(job.arrival / 1000, job.finished / 1000, 429 if job.failure else 200)
    if not job.failure:
        answer.wait_ms = round(job.sent - job.arrival)
    if job.number in witness.told:
        ms = witness.told[job.number]
        # As the header says it.
        wait = None if ms is None else round(ms / 1000, 1)
        answer.hints.append(Hint(answer.sent, 0, wait, None))
    return Sent(request, answer)


def simulate(load: Load, seed: int) -> Run:
    """One run, after a warm-up without the flood."""
    before = list(requests(WARM_UP.seconds, WARM_UP.others, WARM_UP.flood, 0, "warm-up"))
    asked = list(requests(load.seconds, load.others, load.flood, seed, f"seed-{seed}"))
    began = WARM_UP.seconds + PAUSE_S
    arrivals = [request.at for request in before] + [began + request.at for request in asked]
    everyone = [*before, *asked]
    jobs = [
        _job(number, request, at) for number, (request, at) in enumerate(zip(everyone, arrivals, strict=True))
    ]
    spec = ServerSpec(model=MODEL, capacity=fleet.CAPACITY, kind=Exhaustion.PREEMPT)
    servers = [Server(spec) for _ in range(fleet.ENGINES)]
    witness = Witness(servers, seed, everyone)
    Simulation(jobs, servers, witness).run()
    return Run(
        began,
        max(arrivals),
        [_sent(request, job, witness) for request, job in zip(asked, jobs[len(before) :], strict=True)],
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the figures of each seed, and their means."""
    parser = argparse.ArgumentParser(prog="python -m bench.buffer.simulated", description=__doc__)
    parser.add_argument("--seeds", default="11-20", metavar="FIRST-LAST", help="default: %(default)s")
    parser.add_argument("--seconds", type=float, default=FULL.seconds, help="default: %(default)s")
    given = parser.parse_args(arguments)
    first, _, last = given.seeds.partition("-")
    load = Load(given.seconds, FULL.others, FULL.flood)
    table = Table("seed", *SHOWN)
    found: list[dict[str, Any]] = []
    for seed in range(int(first), int(last or first) + 1):
        found.append(of_run(simulate(load, seed)))
        table.add_row(str(seed), *(f"{found[-1][name]}" for name in SHOWN))
    means = {
        name: fmean([figures[name] for figures in found if figures[name] is not None] or [nan])
        for name in SHOWN
    }
    table.add_row("mean", *(f"{means[name]:.3f}" for name in SHOWN))
    report.console().print(table)


if __name__ == "__main__":
    main()
