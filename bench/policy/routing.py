"""What the simulation asks of a router: where requests go, and what it hears of them."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from bench.policy.job import Job
from bench.policy.server import Server
from sidecar.telemetry.readings import EngineReading, Total

WAIT, NOBODY = -1, -2


@dataclass(slots=True)
class Reading:
    """One look at a server, as its metrics tell it."""

    up: bool
    kv: float
    """Share of the KV memory in use."""
    running: int
    waiting: int
    waiting_tokens: int
    """Prompt tokens of the requests that the engine has queued."""
    generated: int
    """Output tokens since the engine's start."""
    at: float
    engine: EngineReading | None = None
    """The same as the sidecar takes it from vLLM's metrics (`emulator/vllm_metrics.py`), as far as the fit of
    costs reads it."""


def read(server: Server, now: float) -> Reading:
    """Look at a server."""
    engine = server.engine
    if not server.up:
        return Reading(False, 0.0, 0, 0, 0, 0, now)
    waiting, running, counters = len(engine.waiting), len(engine.running), engine.counters
    queued = sum(request.target for request in engine.waiting.all()) if waiting else 0
    kv = engine.memory.usage
    told = EngineReading(
        at=now,
        source="vllm",
        running=running,
        waiting=waiting,
        kv_use=kv,
        output_tokens=counters.generation_tokens,
        prompt_tokens=counters.prompt_tokens,
        inter_token=Total(counters.decoding, counters.decoded),
        steps=Total(counters.tokens, counters.steps),
    )
    return Reading(True, kv, running, waiting, queued, counters.generation_tokens, now, told)


class Router:
    """The common part: who waits (first come, first served), and who is left out because it was not there.

    A router that finds a server's port closed, or its connection broken, leaves it alone for ten seconds, as
    nginx does (`max_fails=1 fail_timeout=10s`).
    """

    name = "router"
    poll_ms = 500.0
    """How often it looks at the servers' metrics."""
    FAIL_TIMEOUT_MS = 10_000.0
    MOST_WAIT_MS = 30_000.0

    def __init__(self, servers: Sequence[Server], seed: int) -> None:
        self.servers = servers
        self.random = random.Random(seed)
        self.count = len(servers)
        self.inflight = [0] * self.count
        self.out_until = [0.0] * self.count
        self.readings: list[Reading] = [read(server, 0.0) for server in servers]
        self._waiting: deque[Job] = deque()
        self._tried: set[int] = set()

    # What it decides

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """The server of a request, of the candidates (never none), or WAIT."""
        raise NotImplementedError

    def choose(self, job: Job, now: float) -> int:
        """The server of a request, WAIT or NOBODY."""
        candidates = self._candidates(now)
        if not candidates:
            return NOBODY
        chosen = self.pick(job, now, candidates)
        if chosen >= 0:
            self.inflight[chosen] += 1
            self.taken(job, chosen, now)
        return chosen

    def _candidates(self, now: float) -> Sequence[int]:
        until, tried = self.out_until, self._tried
        if not tried and max(until) <= now:
            return range(self.count)
        usable = [i for i in range(self.count) if until[i] <= now and i not in tried]
        return usable or [i for i in range(self.count) if i not in tried]

    # What it hears

    def asked(self, job: Job, now: float) -> None:
        """A request has come."""

    def taken(self, job: Job, chosen: int, now: float) -> None:
        """A request was given a server."""

    def refused(self, job: Job, server: int, now: float) -> None:
        """The server was not there; the request is to be given another."""
        self.inflight[server] -= 1
        self.out_until[server] = now + self.FAIL_TIMEOUT_MS
        self._tried.add(server)
        self.forget(job, server)

    def settled(self, job: Job) -> None:
        """The request was sent, or has failed."""
        self._tried.clear()

    def first_token(self, job: Job, now: float) -> None:
        """Its first token is out."""

    def preempted(self, job: Job, now: float) -> None:
        """The engine took its memory."""

    def ended(self, job: Job, now: float) -> None:
        """It is complete, or has failed (`job.failure`)."""
        self.inflight[job.server] -= 1
        if job.failure and not self.servers[job.server].engine.alive:
            self.out_until[job.server] = now + self.FAIL_TIMEOUT_MS
        self.forget(job, job.server)

    def forget(self, job: Job, server: int) -> None:
        """Take off what the rule noted in `taken`."""

    def looked(self, readings: list[Reading], now: float) -> None:
        """Telemetry came in; `readings` may be old."""
        self.readings = readings

    # Who waits

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._waiting)

    def enter(self, job: Job, now: float) -> None:
        """A request begins to wait."""
        self._waiting.append(job)

    def next(self, now: float) -> tuple[Job, int] | None:
        """The next that waits and is settled now, with its server or NOBODY; it waits no longer."""
        if not self._waiting:
            return None
        job = self._waiting[0]
        chosen = self.choose(job, now)
        if chosen == WAIT:
            return None
        self._waiting.popleft()
        return job, chosen

    def leave(self, job: Job, now: float) -> None:
        """A waiting request gives up."""
        self._waiting.remove(job)

    def expired(self, now: float) -> Job | None:
        """A request that has waited too long, if any."""
        oldest = self._waiting[0] if self._waiting else None
        return oldest if oldest is not None and now - oldest.arrival >= self.MOST_WAIT_MS else None

    @property
    def sees_progress(self) -> bool:
        """Whether it counts tokens as they stream past, so that engines are brought up to each decision."""
        return False
