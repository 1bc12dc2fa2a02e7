"""Tokenweir in the simulator: the shipped Lua decides (`gateway.lua` runs it), and the sidecar's own classes
publish what it reads: telemetry, fitted costs, the margin after an out-of-memory, ramps, running figures."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

from bench.policy.job import Job
from bench.policy.routing import NOBODY, WAIT, Reading, Router
from bench.policy.server import Server
from emulator.engine import Exhaustion, State
from sidecar.control.cost_fit import CostFit
from sidecar.control.engine_steps import mean_step
from sidecar.control.margin import Margin
from sidecar.control.ramp import Ramp, admitted
from sidecar.control.scores import scores
from sidecar.learning.lengths import Lengths
from sidecar.telemetry.readings import EngineReading, Total
from tokenweir import facts
from tokenweir.config.control import RampConfig
from tokenweir.contract.records import Cost
from tokenweir.contract.snapshot import PolicySettings
from tokenweir.luavm import new_runtime

DRIVER = Path(__file__).with_name("gateway.lua")
FIT_EVERY_MS = 1000.0
STATS_EVERY_MS = 1000.0
ENGINES = {Exhaustion.PREEMPT: "vllm", Exhaustion.ABORT: "llamacpp", Exhaustion.CRASH: ""}
"""What telemetry calls engines of each kind; nothing is known of those that crash."""
COST_CHANGE = 0.02
"""Relative change of a fitted coefficient that makes the snapshot be built anew."""
HASH_MASK = 2**52 - 1
BLOCKS_OF_A_SIZE = 16


@lru_cache(maxsize=4096)
def block_ends(count: int) -> tuple[int, ...]:
    """Of so many equal blocks the ends of those beginnings that are hashed: every block at first, later every
    fourth, sixteenth and sixty-fourth (`core/prefix_blocks.lua`)."""
    ends: list[int] = []
    at, step = 0, 1
    while at + step <= count and len(ends) < 4 * BLOCKS_OF_A_SIZE:
        at += step
        ends.append(at)
        if len(ends) % BLOCKS_OF_A_SIZE == 0:
            step *= 4
    return tuple(ends)


def session_halves(session: Hashable) -> tuple[int | None, int | None]:
    """The two halves of a session's hash."""
    if session is None:
        return None, None
    digest = blake2b(repr(session).encode(), digest_size=8).digest()
    return tuple(int.from_bytes(part, "little", signed=True) for part in (digest[:4], digest[4:]))  # type: ignore[return-value]


def to_lua(runtime: Any, value: Any) -> Any:
    """A JSON-like value as Lua tables."""
    if isinstance(value, dict):
        return runtime.table_from({k.encode(): to_lua(runtime, v) for k, v in value.items() if v is not None})
    if isinstance(value, list):
        return runtime.table_from([to_lua(runtime, item) for item in value])
    return value.encode() if isinstance(value, str) else value


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
    ) -> None:
        super().__init__(servers, seed)
        self.name = policy
        self._fit, self._judge = fit, judge
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
        self._settings = PolicySettings(**(thresholds or {})).model_dump()
        self._margin = Margin()
        self._lengths = Lengths()
        self._stats_at = self._fit_at = 0.0
        self._costs = [CostFit(_start_cost(server)) for server in servers]
        self._published = [fit.cost() for fit in self._costs]
        self._before: list[EngineReading | None] = [None] * self.count
        self._ready = [server.up for server in servers]
        self._ramps = [Ramp() for _ in servers]
        self._ramp_config = RampConfig()
        self._admit = [1.0] * self.count
        self._jobs: dict[int, Job] = {}
        self._arrivals: dict[int, float] = {}
        self._paused: dict[int, list[Job]] = {}
        self._synced = [-1] * self.count
        self._publish()

    # What the sidecar does

    def _publish(self) -> None:
        backends = []
        for i, server in enumerate(self.servers):
            reading = self.readings[i]
            low, high = scores(reading.kv)
            backends.append(
                {
                    "id": f"s{i}",
                    "host": "10.0.0.1",
                    "port": 8000,
                    "models": {"m": "m"},
                    "state": "ready" if self._ready[i] else "down",
                    "admit": self._admit[i],
                    "memory": reading.kv if self._ready[i] else None,
                    "low": low,
                    "high": high,
                    "capacity": server.capacity,
                    "engine": ENGINES[server.spec.kind],
                    "cost": self._published[i].model_dump(),
                }
            )
        self._gateway.apply(
            to_lua(
                self._runtime,
                {
                    "schema": 1,
                    "fence": 1,
                    "sequence": 1,
                    "time_ms": 1,
                    "thresholds": self._settings | {"z": self._margin.z(self._settings["z"], self._at)},
                    "backends": backends,
                },
            )
        )

    _at = 0.0

    def looked(self, readings: list[Reading], now: float) -> None:
        """A tick of the sidecar."""
        super().looked(readings, now)
        self._at = now
        changed = self._states(now)
        if self._fit and now >= self._fit_at:
            self._fit_at = now + FIT_EVERY_MS
            changed |= self._fit_costs(now)
        if now >= self._stats_at:
            self._stats_at = now + STATS_EVERY_MS
            figures = self._lengths.figures()
            if figures is not None:
                self._gateway.stats(self._lengths.count, figures.mean, figures.median, figures.spread)
        if changed:
            self._publish()
            return
        tell = self._gateway.read
        for i, reading in enumerate(readings):
            tell(i + 1, reading.kv, *scores(reading.kv))
        self._gateway.watch(now)
        self._gateway.threshold(b"z", self._margin.z(self._settings["z"], now))

    def _states(self, now: float) -> bool:
        """Who is ready, and who ramps."""
        changed = False
        hurry = self.waiting > 0
        for i, reading in enumerate(self.readings):
            if reading.up != self._ready[i]:
                self._ready[i] = changed = True
                if not reading.up:
                    self._ready[i] = False
                elif self.count > 1:
                    self._ramps[i].begin(self._ramp_config, now)
            elif self._ramps[i].going_on:
                self._ramps[i].update(self._ramp_config, now, None, hurry)
                changed = True
        if changed:
            self._admit = admitted([ramp.share for ramp in self._ramps])
        return changed

    def _fit_costs(self, now: float) -> bool:
        changed = False
        for i, server in enumerate(self.servers):
            reading = _engine_reading(server, now) if server.up else None
            before, self._before[i] = self._before[i], reading
            if reading is None or before is None:
                continue
            step = mean_step(before, reading, server.capacity)
            if step is None:
                continue
            self._costs[i].observe(step, now)
            cost = self._costs[i].cost()
            if _differs(cost, self._published[i]):
                self._published[i] = cost
                changed = True
        return changed

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
            hashes.append(hash(job.hashes[k - 1]) & HASH_MASK)
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
            self._margin.out_of_memory(now)
        else:
            self._lua_outcome(i + 1, b"ok", now)
            self._lengths.add(job.output)
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
        self._gateway.enter(job.number, job.key.encode(), now)

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
        self._gateway.leave(job.number)
        del self._jobs[job.number], self._arrivals[job.number]
        self._lua_release(job.number)

    def expired(self, now: float) -> Job | None:
        """Who has waited too long (`queue.max_wait`)."""
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


def _start_cost(server: Server) -> Cost:
    step = facts.coefficients(server.spec.gpu, server.spec.model, server.spec.precision)
    return Cost(
        prefill=step.prefill,
        base=step.base,
        per_sequence=max(step.per_sequence, 0.0),
        per_kv_token=step.per_kv_token,
    )


def _engine_reading(server: Server, now: float) -> EngineReading:
    """What vLLM's metrics would tell (`emulator/vllm_metrics.py`), as far as the cost fit reads it."""
    engine, counters = server.engine, server.engine.counters
    return EngineReading(
        at=now,
        source="vllm",
        running=len(engine.running),
        waiting=len(engine.waiting),
        kv_use=engine.memory.usage,
        output_tokens=counters.generation_tokens,
        prompt_tokens=counters.prompt_tokens,
        inter_token=Total(counters.decoding, counters.decoded),
        steps=Total(counters.tokens, counters.steps),
    )


def _differs(one: Cost, other: Cost) -> bool:
    return any(
        abs(a - b) > COST_CHANGE * b
        for a, b in (
            (one.prefill, other.prefill),
            (one.base, other.base),
            (one.per_sequence, other.per_sequence),
            (one.per_kv_token, other.per_kv_token),
        )
    )
