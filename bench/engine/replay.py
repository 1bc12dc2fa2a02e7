"""Replays a recorded run on the engine model, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

from bench.engine.recording import Recording, Second, Served
from emulator.engine import Engine, Limits, Request
from emulator.engine.counters import Counters
from tokenweir import facts

GPU, MODEL = "RTX-4090", "llama-3.1-8b"


@dataclass(frozen=True)
class Replay:
    """What the model made of the run."""

    requests: list[Served]
    curve: list[Second]
    counters: Counters


def replay(recording: Recording) -> Replay:
    """Ask of the emulated engine what was asked of the real one, at the same moments, and read its state
    every second."""
    limits = Limits(
        max_num_seqs=recording.max_num_seqs, max_num_batched_tokens=recording.max_num_batched_tokens
    )
    engine = Engine(facts.step_time(GPU, MODEL), recording.capacity, limits=limits)
    curve: list[Second] = []

    def advance(until: float) -> None:
        while (second := 1e3 * (len(curve) + 1)) <= until and not (until == inf and engine.idle):
            engine.advance(second)
            curve.append(Second(second / 1e3, len(engine.running), len(engine.waiting), engine.memory.usage))
        if until < inf:
            engine.advance(until)

    asked = []
    for served in recording.requests:
        request = Request(served.prompt, served.output)
        advance(served.queued * 1e3)
        engine.submit(request, served.queued * 1e3)
        asked.append(request)
    advance(inf)
    requests = [
        Served(
            request.prompt,
            request.output,
            request.queued / 1e3,
            request.first_token / 1e3,
            request.finished / 1e3,
        )
        for request in asked
    ]
    return Replay(requests, curve, engine.counters)
