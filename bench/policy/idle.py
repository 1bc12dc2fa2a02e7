"""An idle fleet: each request has its fastest server for itself, and finds all of its prompt cached that was
asked before. No policy can better that."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan
from typing import Any, Final

from bench.policy.figures import Objectives, percentile
from bench.policy.job import Job
from bench.policy.server import Server, ServerSpec
from emulator.engine import Engine, EventKind, Request

ENDLESS: Final = 2**40
"""KV tokens of a memory from which nothing is ever dropped."""


def figures(jobs: Sequence[Job], specs: Sequence[ServerSpec], goals: Objectives) -> dict[str, Any]:
    """What requests come to on an idle fleet. Times in s."""
    by_spec = [_alone(jobs, spec) for spec in dict.fromkeys(specs)]
    fastest = [min(times, key=lambda pair: pair[1]) for times in zip(*by_spec, strict=True)]
    good = sum(
        goals.in_time(job.prompt, job.output, first, last)
        for job, (first, last) in zip(jobs, fastest, strict=True)
    )
    whole = [last for _, last in fastest]
    return {
        "good_share": good / len(jobs),
        "p50_s": percentile(whole, 0.5) / 1000,
        "p99_s": percentile(whole, 0.99) / 1000,
    }


def _alone(jobs: Sequence[Job], spec: ServerSpec) -> list[tuple[float, float]]:
    """When the first and the last token of each request come, ms after it came."""
    like = Server(spec).engine
    engine = Engine(like.pace.time, ENDLESS, limits=like.limits)
    engine.pace.slowdown = spec.slowdown
    times = []
    for job in jobs:
        came, first = engine.now, nan
        engine.submit(Request(job.prompt, job.output, job.hashes, job), came)
        while not engine.idle:
            engine.advance(engine.next_change())
        for event in engine.events():
            if event.kind is EventKind.FIRST_TOKEN:
                first = event.time - came
        times.append((first, engine.now - came))
    return times
