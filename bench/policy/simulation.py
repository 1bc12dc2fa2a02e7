"""The event loop: arrivals, engines, telemetry, and the router between them, in virtual time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf

from bench.policy.job import Job
from bench.policy.routing import NOBODY, WAIT, Reading, Router, read
from bench.policy.server import Server
from emulator.engine import EventKind, Request

FAILED_THINK_MS = 1000.0
"""How long a client of a closed loop waits after a failure."""
LOOK_MS = 10.0
"""How often who waits is looked at again while nothing ends: streams grow, predictions come true."""


class Simulation:
    """One run. `step_ms` > 0: the router sees the progress of streams so often, not at every decision (for
    large fleets). `clients` > 0: a closed loop of so many, each of which asks again when it is served (and a
    second after a failure), whatever the arrival times were."""

    def __init__(
        self,
        jobs: Sequence[Job],
        servers: Sequence[Server],
        router: Router,
        *,
        delay_ms: float = 0.0,
        step_ms: float = 0.0,
        watch: Callable[[float, Sequence[Server]], None] | None = None,
        watch_ms: float = 1000.0,
        progress: Callable[[int], None] | None = None,
        clients: int = 0,
    ) -> None:
        self.jobs, self.servers, self.router = jobs, servers, router
        self.delay_ms, self.step_ms = delay_ms, step_ms
        self._watch, self._watch_ms = watch, watch_ms
        self._progress = progress
        self.now = 0.0
        self.ended = 0
        self._heap: list[tuple[float, int]] = []
        self._due = [inf] * len(servers)
        self._readings: deque[tuple[float, list[Reading]]] = deque()
        self._clients = clients
        self._next = 0
        self._idle: list[float] = [float(k) for k in range(clients)]
        """When each idle client asks again: a heap; at first one a millisecond."""

    def run(self) -> None:
        """Until every request has ended."""
        heap, count = self._heap, len(self.jobs)
        poll, watch, look, step = 0.0, 0.0 if self._watch else inf, inf, 0.0 if self.step_ms else inf
        for index in range(len(self.servers)):
            self._schedule(index)
        while self.ended < count:
            at = self._next_arrival()
            while heap and heap[0][0] != self._due[heap[0][1]]:
                heappop(heap)
            engine = heap[0][0] if heap else inf
            self.now = now = min(at, engine, poll, watch, look, step)
            if now == inf:
                raise RuntimeError(f"{count - self.ended} requests wait for ever")
            if engine == now:
                _, index = heappop(heap)
                self._engine(index)
                if self.router.waiting:
                    self._serve()
            elif at == now:
                self._arrive()
            elif poll == now:
                self._look()
                poll = now + self.router.poll_ms
            elif step == now:
                self._sync()
                step = now + self.step_ms
            elif watch == now:
                assert self._watch is not None
                self._sync()
                self._watch(now, self.servers)
                watch = now + self._watch_ms
            else:
                self._serve()
                look = inf
            if not self.router.waiting:
                look = inf
            elif look == inf:
                look = now + LOOK_MS

    # Engines

    def _schedule(self, index: int) -> None:
        due = self._due[index] = self.servers[index].next_change()
        if due < inf:
            heappush(self._heap, (due, index))

    def _engine(self, index: int) -> None:
        """Something may have happened on a server."""
        server, now = self.servers[index], self.now
        if not server.up:
            server.start(now)
        else:
            server.engine.advance(now)
            self._hear(index)
        self._schedule(index)

    def _hear(self, index: int) -> None:
        server, router = self.servers[index], self.router
        events = server.engine.events()
        if not server.engine.alive and server.up:
            server.died(self.now)
        for event in events:
            job: Job = event.request.tag
            if event.kind is EventKind.FIRST_TOKEN:
                job.first_token = event.time
                router.first_token(job, event.time)
            elif event.kind is EventKind.PREEMPTED:
                router.preempted(job, event.time)
            else:
                if event.kind is EventKind.FAILED:
                    job.failure = "memory"
                self._end(job, event.time)
                router.ended(job, event.time)

    def _sync(self) -> None:
        """Bring every engine to now; nothing but decoding can have happened."""
        for server in self.servers:
            if server.up:
                server.engine.advance(self.now)

    # Requests

    def _end(self, job: Job, at: float) -> None:
        job.finished = at
        self.ended += 1
        if self._clients:
            heappush(self._idle, at + (FAILED_THINK_MS if job.failure else 0.0))
        if self._progress is not None:
            self._progress(self.ended)

    def _next_arrival(self) -> float:
        if self._next >= len(self.jobs):
            return inf
        if self._clients:
            return max(self._idle[0], self.now) if self._idle else inf
        return self.jobs[self._next].arrival

    def _arrive(self) -> None:
        job, router = self.jobs[self._next], self.router
        self._next += 1
        if self._clients:
            heappop(self._idle)
            job.arrival = self.now
        router.asked(job, self.now)
        if router.waiting or not self._send(job):
            self.wait(job)

    def _send(self, job: Job) -> bool:
        """Try to send a request; False: it has to wait."""
        self._show_progress()
        return self._deliver(job, self.router.choose(job, self.now))

    def _deliver(self, job: Job, index: int) -> bool:
        """Bring a request to the server that was chosen, or, where that is not there, to another; False: it
        has to wait. What nobody can take has failed."""
        router, now = self.router, self.now
        while index != WAIT:
            if index == NOBODY:
                job.failure = "gone"
                self._end(job, now)
            elif not (self.servers[index].up and self._submit(job, index)):
                router.refused(job, index, now)
                index = router.choose(job, now)
                continue
            router.settled(job)
            return True
        return False

    def _show_progress(self) -> None:
        if self.router.sees_progress and not self.step_ms:
            self._sync()

    def _submit(self, job: Job, index: int) -> bool:
        """Hand a request to an engine; False when that dies at this very moment."""
        engine = self.servers[index].engine
        request = Request(job.prompt, job.output, job.hashes, job)
        try:
            engine.submit(request, self.now)
        except RuntimeError:
            request.tag = None
        else:
            job.server, job.sent, job.request = index, self.now, request
        self._hear(index)
        self._schedule(index)
        return job.request is request

    def wait(self, job: Job) -> None:
        """A request joins those who wait. It may pass them, where there is room for it."""
        self.router.enter(job, self.now)
        self._give()
        self._turn_away()

    def _serve(self) -> None:
        """Something may have become free."""
        self._turn_away()
        self._give()

    def _turn_away(self) -> None:
        """Refuse those who have waited too long, or would have to."""
        router, now = self.router, self.now
        while (job := router.expired(now)) is not None:
            router.leave(job, now)
            job.failure = "waited"
            self._end(job, now)

    def _give(self) -> None:
        """Give those who wait what is free."""
        router, now = self.router, self.now
        self._show_progress()
        while (found := router.next(now)) is not None:
            if not self._deliver(*found):
                router.enter(found[0], now)

    # Telemetry

    def _look(self) -> None:
        self._sync()
        self._readings.append((self.now, [read(server, self.now) for server in self.servers]))
        readings = self._readings
        while len(readings) > 1 and readings[1][0] <= self.now - self.delay_ms:
            readings.popleft()
        self.router.looked(readings[0][1], self.now)
