"""A rule that knows every length: what is to be had at most from knowing them."""

from __future__ import annotations

from collections.abc import Sequence

from bench.policy.job import Job
from bench.policy.routing import WAIT, Router
from bench.policy.server import Server
from tokenweir import facts


class LeastWork(Router):
    """Least true work before it, in ms, among the servers whose true peak with it fits; else it waits."""

    name = "clairvoyant least work"

    def __init__(self, servers: Sequence[Server], seed: int) -> None:
        super().__init__(servers, seed)
        self._jobs: list[dict[int, Job]] = [{} for _ in range(self.count)]
        self._costs = [
            facts.coefficients(server.spec.gpu, server.spec.model, server.spec.precision)
            for server in servers
        ]

    @property
    def sees_progress(self) -> bool:
        """It knows where every request is."""
        return True

    def _left(self, job: Job, i: int) -> tuple[int, int, int]:
        """(tokens held or to be held by the prompt, tokens to come, prompt tokens to compute)"""
        request = job.request
        made = self.servers[i].engine.generated(request) if request is not None else 0
        return job.prompt + made, job.output - made, 0 if made else job.prompt

    def _fits(self, parts: list[tuple[int, int, int]], capacity: int) -> bool:
        held = 0
        for k, (own, left, _) in enumerate(sorted(parts, key=lambda part: -part[1]), start=1):
            held += own
            if held + k * left > capacity - 16 * len(parts):
                return False
        return True

    def _work(self, parts: list[tuple[int, int, int]], i: int) -> float:
        cost, slow = self._costs[i], self.servers[i].spec.slowdown
        held = sum(part[0] for part in parts)
        step = cost.base + cost.per_sequence * len(parts) + cost.per_kv_token * held
        own = parts[-1]
        return slow * (
            cost.prefill * sum(part[2] for part in parts) + own[1] * step * (1 + 0.02 * len(parts))
        )

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """Least work."""
        best, least = WAIT, float("inf")
        for i in candidates:
            if not self.servers[i].up:
                continue
            parts = [self._left(other, i) for other in self._jobs[i].values()]
            parts.append((job.prompt, job.output, job.prompt))
            if not self._fits(parts, self.servers[i].capacity) and len(parts) > 1:
                continue
            work = self._work(parts, i)
            if work < least:
                best, least = i, work
        return best

    def taken(self, job: Job, chosen: int, now: float) -> None:
        """It is there now."""
        self._jobs[chosen][job.number] = job

    def forget(self, job: Job, server: int) -> None:
        """It is not there any more."""
        del self._jobs[server][job.number]
