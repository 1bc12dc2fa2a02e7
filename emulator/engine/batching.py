"""Continuous batching, one step at a time, as vLLM V1 schedules it.

A step first gives each running sequence its tokens, oldest first: one to those that decode, a chunk of the
prompt to those that do not yet, within `max_num_batched_tokens`. Where memory is short, the kind of
exhaustion decides. Then, unless memory was short, waiting requests are admitted in order, each when its whole
sequence fits (less what the prefix cache holds) above the watermark. With `async_scheduling` a step is
planned while the one before it runs, so a request that arrives then waits one step more. While only decoding
happens, any number of steps is one jump.
"""

from math import inf, isnan, nan

from emulator.engine.admission import cached_blocks, fits
from emulator.engine.counters import Counters
from emulator.engine.decoding import DecodingGroup
from emulator.engine.events import Event, EventKind
from emulator.engine.exhaustion import Exhaustion
from emulator.engine.holdings import Holdings
from emulator.engine.kv_memory import KvMemory
from emulator.engine.limits import Limits
from emulator.engine.queue import WaitingQueue
from emulator.engine.request import Request, State
from emulator.engine.step_time import Pace
from tokenweir.facts import BLOCK, StepTime


class Engine:
    """One engine. Drive it with `submit`, `abort` and `advance(now)`; `now` (ms) never goes back."""

    def __init__(
        self,
        time: StepTime,
        capacity: int,
        exhaustion: Exhaustion = Exhaustion.PREEMPT,
        limits: Limits | None = None,
    ) -> None:
        self.limits = limits or Limits()
        self.pace = Pace(time)
        self.memory = KvMemory(capacity // BLOCK, self.limits.hash_tokens // BLOCK)
        self.exhaustion = exhaustion
        share = exhaustion.watermark if self.limits.watermark is None else self.limits.watermark
        self.watermark = int(share * self.memory.blocks)
        self.counters = Counters()
        self.now = 0.0
        self.alive = True
        self.running: dict[int, Request] = {}
        """Admitted requests by number, oldest first."""
        self.waiting = WaitingQueue()
        self._number = 0
        self._events: list[Event] = []
        self._decoding = DecodingGroup()
        self._held = Holdings(self.memory, self.limits, self._decoding)
        self._prefilling: list[Request] = []
        # The step in progress, when it is planned. Decoding alone needs no plan.
        self._planned = False
        self._step_end = nan
        self._chunks: list[tuple[Request, int]] = []
        # Start of the last step that the next one follows without a pause.
        self._last_start = -inf
        # The head of the queue did not fit, and no memory was freed since.
        self._blocked = False

    @property
    def capacity(self) -> int:
        """KV tokens."""
        return self.memory.blocks * BLOCK

    @property
    def idle(self) -> bool:
        """Nothing to do."""
        return not self.running and not len(self.waiting)

    @property
    def decoding_steps(self) -> int:
        """Decoding steps so far: a sequence that joined at step `joined` has come `decoding_steps - joined`
        tokens further since."""
        return self._decoding.steps

    def generated(self, request: Request) -> int:
        """Tokens that a request has produced so far."""
        return self._decoding.generated(request) if request.state is State.DECODE else request.base

    def submit(self, request: Request, now: float) -> None:
        """Queue a request at `now`. Raises ValueError when it could never fit, RuntimeError when the engine
        is down."""
        if request.prompt + request.output > self.capacity:
            raise ValueError(
                f"{request.prompt} prompt and {request.output} output tokens exceed "
                f"the KV memory of {self.capacity}"
            )
        self.advance(now)
        if self.alive and not self._planned and self.now < now:
            # A decoding step is in progress, planned without this request.
            self._plan()
        if not self.alive:
            raise RuntimeError("the engine is down")
        request.number = self._number
        self._number += 1
        if isnan(request.queued):
            request.queued = now
        self.waiting.append(request)
        self.counters.submitted += 1

    def abort(self, request: Request, now: float) -> None:
        """Drop a request at `now` and free what it holds at once. Nothing happens when it is done already."""
        self.advance(now)
        if request.state is State.DONE:
            return
        self._drop(request)
        request.finished = now
        self.counters.aborted += 1

    def fail_all(self, reason: str, *, waiting: bool) -> None:
        """Fail every running request, and with `waiting` also those in the queue."""
        for request in [*self.running.values(), *(self.waiting.all() if waiting else ())]:
            self._drop(request)
            request.finished, request.failure = self.now, reason
            self.counters.failed += 1
            self._events.append(Event(self.now, EventKind.FAILED, request))

    def crash(self, reason: str) -> None:
        """Fail everything and stop until `restart`."""
        self.fail_all(reason, waiting=True)
        self.alive = self._planned = False

    def restart(self, now: float) -> None:
        """Start again with empty memory."""
        watch, self.memory.watch = self.memory.watch, None
        if watch is not None:
            for key in self.memory.cache.references:
                watch.lost(key)
        self.memory = KvMemory(self.memory.blocks, self.memory.hash_blocks, watch)
        self._decoding = DecodingGroup()
        self._held = Holdings(self.memory, self.limits, self._decoding)
        self.now, self.alive, self._last_start = now, True, -inf

    def events(self) -> list[Event]:
        """What happened since the last call, in order of time."""
        events, self._events = self._events, []
        return events

    def advance(self, now: float) -> None:
        """Carry out every step that ends by `now`. What happened is in `events`."""
        while self.alive:
            if self._planned:
                if self._step_end > now:
                    return
                self._complete()
            elif self.idle:
                self.now, self._last_start = max(self.now, now), -inf
                return
            elif (most := self._decoding_steps()) == 0:
                if self.now >= now:
                    # Who comes at this very moment is still in time for the step that starts.
                    return
                self._plan()
            else:
                group = self._decoding
                count = self.pace.decoding_steps(now - self.now, group.count, group.kv, most)
                if count == 0:
                    return
                self._jump(count)

    def next_step(self) -> float:
        """When the next step ends (inf when idle). Starts the step that is due: ask after submitting what has
        come."""
        return self._after(1)

    def next_change(self) -> float:
        """The earliest time at which anything but decoding can happen (inf when idle): advancing to it misses
        nothing.

        Starts the step that is due: ask after submitting what has come."""
        return self._after(inf)

    def _after(self, steps: float) -> float:
        if not self.alive or self.idle:
            return inf
        if not self._planned:
            if most := self._decoding_steps():
                group = self._decoding
                return self.now + self.pace.decoding(int(min(steps, most)), group.count, group.kv)
            self._plan()
        return self._step_end if self.alive else self.now

    def _decoding_steps(self) -> int:
        """How many steps from now on are decoding alone; 0 when the next one must be planned."""
        if self._prefilling or not self._decoding.count:
            return 0
        if len(self.waiting) and not self._blocked and len(self.running) < self.limits.max_num_seqs:
            return 0
        return self._decoding.steps_within(self.memory.free)

    def _jump(self, count: int) -> None:
        """Do `count` decoding steps at once."""
        group, pace = self._decoding, self.pace
        span = pace.decoding(count, group.count, group.kv)
        before_last = pace.decoding(count - 1, group.count, group.kv) if count > 1 else 0.0
        self._last_start = self.now + before_last
        self.now += span
        self.memory.take(group.blocks_for(count))
        self._account(count, span, group.count * count)
        self.counters.generation_tokens += group.count * count
        group.step(count)
        for request in group.due():
            self._finish(request)

    def _plan(self) -> None:
        """Plan a step and start it at `self.now`."""
        self._chunks = []
        short = self._grow()
        budget = self.limits.max_num_batched_tokens - self._decoding.count
        for request in list(self._prefilling):
            chunk = min(request.target - request.computed, budget)
            if chunk <= 0 or request.state is not State.PREFILL:
                continue
            while request.state is State.PREFILL and self._held.needed(request, chunk) > self.memory.free:
                short = True
                self._relieve()
            if request.state is State.PREFILL:
                self._extend(request, chunk)
                budget -= chunk
        if self.alive and not short:
            self._admit(budget)
        if self.alive:
            self._start()

    def _grow(self) -> bool:
        """Give each decoding sequence room for one more token. True when memory was short."""
        short = False
        while (needed := self._decoding.blocks_for(1)) > self.memory.free:
            short = True
            self._relieve()
        self.memory.take(needed)
        self._planned = self.alive
        return short

    def _relieve(self) -> None:
        """Make room as the kind of exhaustion says."""
        if self.exhaustion is Exhaustion.PREEMPT:
            self._preempt(next(reversed(self.running.values())))
        elif self.exhaustion is Exhaustion.ABORT:
            self.fail_all("KV memory is full: every request in flight was aborted", waiting=False)
        else:
            self.crash("KV memory is full: the engine died")

    def _admit(self, budget: int) -> None:
        """Move waiting requests into the batch while there is room."""
        running = bool(self._decoding.count or self._chunks)
        eligible = self._last_start if self.limits.async_scheduling and running else inf
        while budget > 0 and len(self.waiting) and len(self.running) < self.limits.max_num_seqs:
            request = self.waiting.head()
            if request.queued > eligible and request.preemptions == 0:
                return
            hits = cached_blocks(self.memory, self.limits, request)
            reserve = self.watermark if self.running else 0
            if self.exhaustion.checks_prompt and not fits(self.memory, request, hits, reserve):
                self._blocked = True
                return
            self.waiting.pop()
            budget -= self._enter(request, hits, budget)
            if request.state is not State.PREFILL:
                return

    def _enter(self, request: Request, hits: int, budget: int) -> int:
        """Admit a request and plan its first chunk; returns the chunk's tokens."""
        self._held.enter(request, hits)
        if request.preemptions == 0:
            request.scheduled, request.cached = self.now, request.computed
        if self.limits.prefix_caching:
            self.counters.prefix_queries += request.target
            self.counters.prefix_hits += request.computed
        request.state = State.PREFILL
        self.running[request.number] = request
        self._prefilling.append(request)
        chunk = min(request.target - request.computed, budget)
        if self._held.needed(request, chunk) > self.memory.free:
            self._relieve()
            return 0
        self._extend(request, chunk)
        return chunk

    def _extend(self, request: Request, chunk: int) -> None:
        """Plan a chunk of a prompt."""
        self._held.extend(request, chunk)
        self._chunks.append((request, chunk))

    def _start(self) -> None:
        """Start the planned step: from what is in it follows how long it takes."""
        group = self._decoding
        tokens, kv, attention = group.count, group.kv + group.count, 0.0
        # Relieving memory may have taken a request back after its chunk was planned.
        self._chunks = [(request, chunk) for request, chunk in self._chunks if request.state is State.PREFILL]
        for request, chunk in self._chunks:
            tokens += chunk
            kv += request.computed + chunk
            attention += chunk * (request.computed + chunk / 2)
        span = self.pace.step(tokens, group.count + len(self._chunks), kv, attention) if tokens else 0.0
        self._last_start = self.now
        self._step_end = self.now + span
        self._account(1, span, tokens)

    def _complete(self) -> None:
        """The planned step ends."""
        self._planned = False
        self.now = self._step_end
        self.counters.generation_tokens += self._decoding.count
        self._decoding.step()
        for request, chunk in self._chunks:
            if request.state is State.PREFILL:
                request.computed += chunk
                if request.computed == request.target:
                    self._prefilled(request)
        self._chunks = []
        for request in self._decoding.due():
            self._finish(request)

    def _prefilled(self, request: Request) -> None:
        """A prompt is computed: its first token, or after a preemption its next one, is out."""
        if request.preemptions == 0:
            self.counters.prompt_tokens += request.prompt
        if request.output:
            request.base += 1
            self.counters.generation_tokens += 1
            if isnan(request.first_token):
                request.first_token = self.now
                self._events.append(Event(self.now, EventKind.FIRST_TOKEN, request))
        if request.base >= request.output:
            self._finish(request)
        else:
            self._prefilling.remove(request)
            self._decoding.join(request)

    def _finish(self, request: Request) -> None:
        self._drop(request)
        request.finished = self.now
        self.counters.finished += 1
        self._events.append(Event(self.now, EventKind.FINISHED, request))

    def _preempt(self, request: Request) -> None:
        """Take a running request's memory; it goes to the head of the queue, to be computed again with what
        it has produced."""
        self._held.name_own(request)
        self._release(request)
        request.target = request.prompt + request.base
        request.preemptions += 1
        self.waiting.push_front(request)
        self.counters.preemptions += 1
        self._events.append(Event(self.now, EventKind.PREEMPTED, request))

    def _drop(self, request: Request) -> None:
        """Forget a request and free what it holds."""
        if request.state is State.WAITING:
            self.waiting.drop(request)
            self._blocked = False
        elif request.state is not State.DONE:
            self._release(request)
            request.state = State.DONE

    def _release(self, request: Request) -> None:
        """Take a running request out of the batch and free its memory."""
        if request.state is State.DECODE:
            self._held.free(request, planned=self._planned)
            self._decoding.leave(request)
        else:
            self._held.free(request)
            self._prefilling.remove(request)
        del self.running[request.number]
        self._blocked = False

    def _account(self, steps: int, span: float, tokens: int) -> None:
        counters, decoding = self.counters, self._decoding.count
        counters.steps += steps
        counters.tokens += tokens
        counters.busy += span
        counters.decoded += decoding * steps
        counters.decoding += decoding * span
        counters.tensor += tokens * self.pace.time.per_token
