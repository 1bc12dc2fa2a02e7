"""The policy bench's simulation, with requests that come when another has ended."""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from math import inf

from bench.policy.job import Job
from bench.policy.routing import Router
from bench.policy.server import Server
from bench.policy.simulation import Simulation
from bench.sessions.conversations import Workload, first_of


class Conversations(Simulation):
    """One run of a workload."""

    def __init__(self, workload: Workload, servers: Sequence[Server], router: Router) -> None:
        super().__init__(workload.jobs, servers, router)
        self._next_of = workload.next_of
        self._due_jobs = [(job.arrival, job.number, job) for job in first_of(workload)]
        heapify(self._due_jobs)

    def _next_arrival(self) -> float:
        return self._due_jobs[0][0] if self._due_jobs else inf

    def _arrive(self) -> None:
        _, _, job = heappop(self._due_jobs)
        job.arrival = self.now
        self.router.asked(job, self.now)
        if self.router.waiting or not self._send(job):
            self.wait(job)

    def _end(self, job: Job, at: float) -> None:
        super()._end(job, at)
        follower = self._next_of.get(job.number)
        if follower is not None:
            following, after = follower
            heappush(self._due_jobs, (at + after, following.number, following))
