"""The requests of an engine: those that wait, those in the batch, and the memory that these hold."""

from math import inf, isnan

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
from tokenweir.facts import BLOCK


class Batch:
    """What an engine has to do, without the time that it takes: `Engine` moves it on."""

    def __init__(self, capacity: int, exhaustion: Exhaustion, limits: Limits) -> None:
        self.limits = limits
        self.memory = KvMemory(capacity // BLOCK, limits.hash_tokens // BLOCK)
        self.exhaustion = exhaustion
        share = exhaustion.watermark if limits.watermark is None else limits.watermark
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
        self._held = Holdings(self.memory, limits, self._decoding)
        self._prefilling: list[Request] = []
        # The step in progress, when it is planned. Decoding alone needs no plan.
        self._planned = False
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

    def generated(self, request: Request) -> int:
        """Tokens that a request has produced so far."""
        return self._decoding.generated(request) if request.state is State.DECODE else request.base

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
