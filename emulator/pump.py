"""Drives the engine model in real time and tells those who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from math import inf
from typing import NamedTuple

from emulator.clock import EngineClock
from emulator.engine import Engine, Event, EventKind, Request, State

SHORTEST_TICK = 0.001
"""Seconds between two looks at the engine, at least: at high speeds one look covers many steps."""


class EngineDownError(RuntimeError):
    """The engine has died."""


class Ticket(NamedTuple):
    """What the pump hangs on a sequence: who waits for it, and why it ends when it ends by itself."""

    generation: Generation
    finish_reason: str


class Generation:
    """One or more sequences that a client waits for together."""

    def __init__(self, requests: list[Request], finish_reasons: Sequence[str], streaming: bool) -> None:
        self.requests, self.streaming = requests, streaming
        self._waiter: asyncio.Future[None] | None = None
        self._moved = False
        for request, reason in zip(requests, finish_reasons, strict=True):
            request.tag = Ticket(self, reason)

    @property
    def done(self) -> bool:
        """No sequence runs any more."""
        return all(request.state is State.DONE for request in self.requests)

    @property
    def failure(self) -> str:
        """Why the engine gave a sequence up; empty when it did not."""
        return next((request.failure for request in self.requests if request.failure), "")

    def moved(self) -> None:
        """Something happened to one of the sequences."""
        self._moved = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def progress(self) -> None:
        """Wait until something happened since the last call."""
        if not self._moved:
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter
        self._moved = False

    async def finished(self) -> None:
        """Wait until all sequences are done or one has failed."""
        while not self.done and not self.failure:
            await self.progress()


class Pump:
    """Advances an engine with its clock, and wakes the generations that something happened to."""

    def __init__(
        self,
        engine: Engine,
        clock: EngineClock,
        on_event: Callable[[Event], None],
        on_tick: Callable[[], None],
        on_crash: Callable[[], None],
    ) -> None:
        self.engine, self.clock = engine, clock
        self._on_event, self._on_tick, self._on_crash = on_event, on_tick, on_crash
        self._streams: set[Generation] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due = inf

    def submit(self, generation: Generation) -> None:
        """Put the sequences into the engine's queue. Raises EngineDownError when it has died."""
        now = self.clock.now()
        try:
            for request in generation.requests:
                self.engine.submit(request, now)
        except RuntimeError as error:
            self.tick()
            raise EngineDownError(str(error)) from error
        if generation.streaming:
            self._streams.add(generation)
        self._dispatch()
        self._schedule()

    def abort(self, generation: Generation) -> bool:
        """Take the sequences out and free their memory now. False when there was nothing left to take out."""
        self._streams.discard(generation)
        if generation.done:
            return False
        now = self.clock.now()
        for request in generation.requests:
            self.engine.abort(request, now)
        self._dispatch()
        self._schedule()
        return True

    def stop(self) -> None:
        """Hold the engine."""
        self.clock.stop()
        self._cancel()

    def go(self) -> None:
        """Let the engine run again."""
        self.clock.go()
        self.tick()

    def tick(self) -> None:
        """Bring the engine up to now."""
        self._due, self._timer = inf, None
        self.engine.advance(self.clock.now())
        self._dispatch()
        self._on_tick()
        for generation in list(self._streams):
            generation.moved()
            if generation.done:
                self._streams.discard(generation)
        self._schedule()

    def _dispatch(self) -> None:
        for event in self.engine.events():
            self._on_event(event)
            if event.kind is not EventKind.PREEMPTED:
                ticket: Ticket = event.request.tag
                ticket.generation.moved()
        if not self.engine.alive:
            self._on_crash()

    def _schedule(self) -> None:
        """Look again when the next token is due, or, when nobody streams, at the next end."""
        if self.clock.stopped:
            return
        at = self.engine.next_step() if self._streams else self.engine.next_change()
        if at == inf:
            self._cancel()
            return
        loop = asyncio.get_running_loop()
        due = loop.time() + max(self.clock.wall_seconds(at - self.clock.now()), SHORTEST_TICK)
        if due >= self._due:
            return
        self._cancel()
        self._due = due
        self._timer = loop.call_at(due, self.tick)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._due, self._timer = inf, None
