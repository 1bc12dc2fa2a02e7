"""Tokenweir in the simulator: the shipped Lua decides (`gateway.lua` runs it), and the sidecar's own classes
(`control_plane.py`) publish what it reads."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from pathlib import Path

from bench.policy.control_plane import ControlPlane
from bench.policy.job import Job
from bench.policy.lua_values import block_ends, block_hash, session_halves, to_lua
from bench.policy.routing import NOBODY, WAIT, Reading, Router
from bench.policy.server import Server
from emulator.engine import Exhaustion, State
from sidecar.control.scores import scores
from tokenweir.luavm import new_runtime

DRIVER = Path(__file__).with_name("gateway.lua")


class Tokenweir(Router):
    """A gateway and its sidecar."""

    def __init__(
        self,
        servers: Sequence[Server],
        seed: int,
        policy: str,
        *,
        thresholds: dict[str, float] | None = None,
        fit: bool = True,
        judge: bool = True,
        ramp: bool = True,
    ) -> None:
        super().__init__(servers, seed)
        self.name = policy
        self._judge = judge
        self._plane = ControlPlane(servers, policy, thresholds, fit=fit, ramp=ramp)
        self._runtime = new_runtime()
        self._gateway = self._runtime.execute(DRIVER.read_bytes())(policy.encode(), seed)
        gateway = self._gateway
        self._lua_request, self._lua_pick, self._lua_take = gateway.request, gateway.pick, gateway.take
        self._lua_first_token, self._lua_sync = gateway.first_token, gateway.sync
        self._lua_release, self._lua_learn, self._lua_outcome = (
            gateway.release,
            gateway.learn,
            gateway.outcome,
        )
        self._lua_serve = gateway.serve
        self._jobs: dict[int, Job] = {}
        self._arrivals: dict[int, float] = {}
        self._fresh: deque[Job] = deque()
        """Waiting requests of which was not asked yet whether they can be served in time."""
        self._paused: dict[int, list[Job]] = {}
        self._synced = [-1] * self.count
        self._publish(0.0)

    # What the sidecar publishes

    def _publish(self, now: float) -> None:
        self._gateway.apply(to_lua(self._runtime, self._plane.snapshot(self.readings, now)))

    def looked(self, readings: list[Reading], now: float) -> None:
        """A tick of the sidecar."""
        super().looked(readings, now)
        plane, gateway = self._plane, self._gateway
        changed = plane.observe(readings, now, self.waiting > 0)
        figures = plane.figures(now)
        if figures is not None:
            gateway.stats(plane.lengths.count, figures.mean, figures.median, figures.spread)
        if changed:
            self._publish(now)
            return
        tell = gateway.read
        for i, reading in enumerate(readings):
            tell(i + 1, reading.kv, *scores(reading.kv))
        gateway.watch(now)
        gateway.threshold(b"z", plane.z(now))

    # What the gateway does

    @property
    def sees_progress(self) -> bool:
        """It counts the events of every stream."""
        return True

    def asked(self, job: Job, now: float) -> None:
        """The access phase: the prediction and the session."""
        said = job.prediction
        self._lua_request(
            job.number,
            job.prompt,
            said.mean,
            said.median,
            said.q90,
            said.sd,
            *session_halves(job.session),
        )
        if job.hashes:
            self._blocks(job)

    def _blocks(self, job: Job) -> None:
        """The beginnings of its prompt, as far apart as the gateway takes them."""
        size = self.servers[0].spec.hash_tokens
        hashes, ends = [], []
        for k in block_ends(job.prompt // size):
            hashes.append(block_hash(job.hashes[k - 1]))
            ends.append(k * size)
        table = self._runtime.table_from
        self._gateway.blocks(job.number, table(hashes), table(ends), len(ends))

    def choose(self, job: Job, now: float) -> int:
        """The shipped pick."""
        self._bring_up()
        index: int = self._lua_pick(job.number, now)
        if index < 1:
            return WAIT if index == 0 else NOBODY
        self._lua_take(job.number, index, now)
        return index - 1

    def _bring_up(self) -> None:
        """Tell the ledger how far the streams are."""
        for i, server in enumerate(self.servers):
            engine = server.engine
            if i in self._paused:
                for job in list(self._paused[i]):
                    self._resume(i, job)
            steps = engine.decoding_steps
            if steps != self._synced[i]:
                self._synced[i] = steps
                self._lua_sync(i + 1, steps)

    def _resume(self, i: int, job: Job) -> None:
        request = job.request
        assert request is not None
        if request.state in {State.WAITING, State.PREFILL}:
            return
        self._paused[i].remove(job)
        if not self._paused[i]:
            del self._paused[i]
        if request.state is State.DECODE:
            self._lua_first_token(job.number, request.joined, request.base)

    def taken(self, job: Job, chosen: int, now: float) -> None:
        """Reserved by `choose`."""

    def refused(self, job: Job, server: int, now: float) -> None:
        """Not there: told to passive health, and the next pick leaves it out."""
        self._gateway.refused(job.number, now)

    def settled(self, job: Job) -> None:
        """Sent, or refused."""
        self._gateway.settled()
        if job.failure:
            self._lua_release(job.number)

    def first_token(self, job: Job, now: float) -> None:
        """The first event of a stream."""
        request = job.request
        assert request is not None
        if request.state is State.DECODE:
            self._lua_first_token(job.number, request.joined, request.base)

    def preempted(self, job: Job, now: float) -> None:
        """Its stream stands still."""
        self._gateway.paused(job.number)
        self._paused.setdefault(job.server, []).append(job)

    def ended(self, job: Job, now: float) -> None:
        """The log phase."""
        i = job.server
        if job.failure:
            kind = self.servers[i].spec.kind
            self._lua_outcome(i + 1, b"memory" if kind is Exhaustion.ABORT else b"broke", now)
            self._plane.margin.out_of_memory(now)
        else:
            self._lua_outcome(i + 1, b"ok", now)
            self._plane.lengths.add(job.output)
            if self._judge:
                self._lua_learn(job.number, job.output)
            request = job.request
            assert request is not None
            self._gateway.cached(job.number, job.output, max(request.cached, 0), now)
        self._lua_release(job.number)
        paused = self._paused.get(i)
        if paused and job in paused:
            paused.remove(job)
            if not paused:
                del self._paused[i]

    # Who waits: the core's order

    @property
    def waiting(self) -> int:
        """Requests that wait."""
        return len(self._jobs)

    def enter(self, job: Job, now: float) -> None:
        """It joins the queue."""
        self._jobs[job.number] = job
        self._arrivals[job.number] = now
        self._gateway.enter(job.number, job.key.encode(), now, self.MOST_WAIT_MS, self.priority(job).encode())
        self._fresh.append(job)

    def priority(self, job: Job) -> str:
        """The class in which a request waits."""
        return "normal"

    def doubts(self, job: Job, now: float) -> bool:
        """Whether one that found no place when it came is certain to wait too long."""
        hopeless, _ = self._gateway.doubt(job.number, now)
        return bool(hopeless)

    def next(self, now: float) -> tuple[Job, int] | None:
        """Who is served next, by the core's queue."""
        if not self._jobs:
            return None
        self._bring_up()
        number, index = self._lua_serve(now)
        if number < 0:
            return None
        job = self._jobs.pop(number)
        del self._arrivals[number]
        return job, index - 1

    def leave(self, job: Job, now: float) -> None:
        """Out of the queue."""
        self._gateway.leave(job.number, now)
        del self._jobs[job.number], self._arrivals[job.number]
        self._lua_release(job.number)

    def expired(self, now: float) -> Job | None:
        """Who has waited too long (`queue.max_wait`), or is certain to."""
        while self._fresh:
            job = self._fresh.popleft()
            if job.number in self._jobs and self.doubts(job, now):
                return job
        if not self._arrivals:
            return None
        number, since = next(iter(self._arrivals.items()))
        return self._jobs[number] if now - since >= self.MOST_WAIT_MS else None

    def home(self, session: Hashable) -> int:
        """The server that a session's place on the ring is at."""
        index: int = self._gateway.home(*session_halves(session))
        return index - 1

    # For checks

    @property
    def totals(self) -> tuple[float, float, float]:
        """Sequences, held and remaining tokens in the ledger."""
        n, held, remaining = self._gateway.totals()
        return n, held, remaining

    @property
    def left(self) -> bool:
        """Whether the gateway fell back to the running figures."""
        return bool(self._gateway.left())
