"""Continuous batching, one step at a time, as vLLM V1 schedules it.

A step first gives each running sequence its tokens, oldest first: one to those that decode, a chunk of the
prompt to those that do not yet, within `max_num_batched_tokens`. Where memory is short, the kind of
exhaustion decides. Then, unless memory was short, waiting requests are admitted in order, each when its whole
sequence fits (less what the prefix cache holds) above the watermark. With `async_scheduling` a step is
planned while the one before it runs, so a request that arrives then waits one step more. While only decoding
happens, any number of steps is one jump.
"""

from math import inf, isnan, nan

from emulator.engine.batch import Batch
from emulator.engine.decoding import DecodingGroup
from emulator.engine.events import Event
from emulator.engine.exhaustion import Exhaustion
from emulator.engine.holdings import Holdings
from emulator.engine.kv_memory import KvMemory
from emulator.engine.limits import Limits
from emulator.engine.request import Request, State
from emulator.engine.step_time import Pace
from tokenweir.facts import StepTime


class Engine(Batch):
    """One engine. Drive it with `submit`, `abort` and `advance(now)`; `now` (ms) never goes back."""

    def __init__(
        self,
        time: StepTime,
        capacity: int,
        exhaustion: Exhaustion = Exhaustion.PREEMPT,
        limits: Limits | None = None,
    ) -> None:
        super().__init__(capacity, exhaustion, limits or Limits())
        self.pace = Pace(time)
        self._step_end = nan

    @property
    def decoding_steps(self) -> int:
        """Decoding steps so far: a sequence that joined at step `joined` has come `decoding_steps - joined`
        tokens further since."""
        return self._decoding.steps

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

    def _account(self, steps: int, span: float, tokens: int) -> None:
        counters, decoding = self.counters, self._decoding.count
        counters.steps += steps
        counters.tokens += tokens
        counters.busy += span
        counters.decoded += decoding * steps
        counters.decoding += decoding * span
        counters.tensor += tokens * self.pace.time.per_token
