"""What no policy can better: the rate at which a fleet's memory is full all the time, and what requests take
alone."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from statistics import fmean

from bench.policy.job import Job
from bench.policy.server import ServerSpec
from tokenweir import facts


@cache
def _coefficients(spec: ServerSpec) -> facts.StepCost:
    return facts.coefficients(spec.gpu, spec.model, spec.precision)


def full_memory_rate(jobs: Sequence[Job], specs: Sequence[ServerSpec]) -> float:
    """Requests a second that servers complete whose KV memory holds as many of these requests as it can, at
    every step, with nothing lost and no time idle.

    A request holds its prompt and, on average over its decode steps, half of its output; it is there for as
    many steps as it has output tokens."""
    steps = fmean(job.output for job in jobs)
    held = fmean((job.prompt + job.output / 2) * job.output for job in jobs) / steps
    prompt = fmean(job.prompt for job in jobs)
    rate = 0.0
    for spec in specs:
        cost = _coefficients(spec)
        sequences = spec.kv_tokens / held
        step = cost.base + cost.per_sequence * sequences + cost.per_kv_token * spec.kv_tokens
        rate += 1000 / (spec.slowdown * (steps * step / sequences + prompt * cost.prefill))
    return rate


def alone_ms(job: Job, spec: ServerSpec) -> float:
    """What a request takes on an idle server."""
    cost = _coefficients(spec)
    held = job.prompt + job.output / 2
    step = cost.base + cost.per_sequence + cost.per_kv_token * held
    return spec.slowdown * (cost.prefill * job.prompt + job.output * step)
