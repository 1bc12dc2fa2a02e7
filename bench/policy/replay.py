"""Runs a user's own log through the simulator: what would each policy have given?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bench.policy import figures, workload
from bench.policy.figures import Objectives
from bench.policy.policies import ALL
from bench.policy.scenarios import COARSE_FROM, COARSE_MS
from bench.policy.server import Server, ServerSpec
from bench.policy.simulation import Simulation
from bench.policy.traces import MOONCAKE_BLOCK, Asked

SHOWN: Final = (
    "nginx_round_robin",
    "nginx_least_conn",
    "least_outstanding",
    "dynamo",
    "predictive, running figures only",
    "predictive",
)
"""Rows unless others are asked for: what is there now, the rules of others, and Tokenweir's."""


@dataclass(frozen=True)
class Replay:
    """What is replayed on which servers. `rate`: requests a second; None: as logged."""

    asked: Sequence[Asked]
    specs: Sequence[ServerSpec]
    rate: float | None
    seed: int
    objectives: Objectives

    @property
    def as_logged(self) -> float:
        """The log's own rate."""
        return len(self.asked) / max(self.asked[-1].at - self.asked[0].at, 1e-9)

    @property
    def left_out(self) -> int:
        """Requests that no server could hold."""
        return len(self.asked) - len(self._fitting())

    def _fitting(self) -> list[Asked]:
        longest = min(spec.kv_tokens for spec in self.specs)
        return [request for request in self.asked if request.prompt + request.output <= longest]

    def _specs(self) -> Sequence[ServerSpec]:
        """The servers; where the log tells what blocks of prompts hold, their caches go by these blocks."""
        if any(request.hashes for request in self.asked):
            return [spec.but(hash_tokens=MOONCAKE_BLOCK) for spec in self.specs]
        return self.specs

    def run(self, policy: str, progress: Callable[[int], None] | None = None) -> dict[str, Any]:
        """The figures under one policy; `progress` hears of the requests that have ended."""
        fitting = self._fitting()
        rate = (self.rate or self.as_logged) * len(fitting) / len(self.asked)
        jobs = workload.from_requests([("log", request) for request in fitting], rate, self.seed)
        servers = [Server(spec) for spec in self._specs()]
        row = ALL[policy]
        row.prepare(jobs, self.seed)
        step = COARSE_MS if len(servers) >= COARSE_FROM else 0.0
        router = row.router(servers, self.seed)
        Simulation(jobs, servers, router, step_ms=step, progress=progress).run()
        return figures.of_run(jobs, servers, self.objectives)
