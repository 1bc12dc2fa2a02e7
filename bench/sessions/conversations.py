"""The workloads: recorded conversations, and agents that call fifty to a hundred and fifty times."""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bench.policy import workload
from bench.policy.job import Job
from bench.policy.traces import MOONCAKE_BLOCK

AGENT_BLOCK: Final = 128
"""Tokens of a hash block of the agents' prompts."""
KINDS: Final = 4
"""Kinds of agents; those of one kind begin with the same instructions and tools."""


@dataclass
class Workload:
    """Requests, and which of them come only after another has ended."""

    jobs: list[Job]
    hash_tokens: int
    next_of: dict[int, tuple[Job, float]] = field(default_factory=dict)
    """By number: the request that its end calls forth, and after how many ms."""
    left_out: int = 0


def recorded(count: int, rate: float, seed: int, longest: int) -> Workload:
    """A stretch of the Mooncake conversation trace, at a rate (requests a second)."""
    jobs, left_out = workload.build({"mooncake": 1}, count=count, rate=rate, seed=seed, longest=longest)
    return Workload(jobs, MOONCAKE_BLOCK, left_out=left_out)


def agents(
    sessions: int,
    per_minute: float,
    seed: int,
    *,
    calls: tuple[int, int] = (50, 150),
    name: Callable[[int], Hashable] = lambda k: f"agent-{k}",
) -> Workload:
    """Agents that begin at random. Each call repeats the whole conversation, with the answer and what the
    tool gave; the next one comes when the answer is there and the tool has run."""
    rng = random.Random(f"agents/{seed}")
    made = Workload([], AGENT_BLOCK)
    begins = [0.0]
    while len(begins) < sessions:
        begins.append(begins[-1] + rng.expovariate(per_minute / 60_000))
    for k, begin in enumerate(begins):
        _agent(made, rng, name(k), begin, rng.randint(*calls))
    return made


def _agent(made: Workload, rng: random.Random, session: Hashable, begin: float, calls: int) -> None:
    kind = rng.randrange(KINDS)
    shared = 3000 + 700 * kind
    prompt = shared + rng.randint(200, 1500)
    blocks: list[Hashable] = [("kind", kind, b) for b in range(shared // AGENT_BLOCK)]
    before: Job | None = None
    for _ in range(calls):
        output = min(800, max(20, round(rng.lognormvariate(4.4, 0.7))))
        tool = min(4000, max(30, round(rng.lognormvariate(5.2, 1.0))))
        # What an engine produces is in its cache too.
        while len(blocks) < (prompt + output) // AGENT_BLOCK:
            blocks.append((session, len(blocks)))
        job = Job(
            len(made.jobs), begin, prompt, output, session=session, key=f"kind-{kind}", hashes=tuple(blocks)
        )
        made.jobs.append(job)
        if before is not None:
            made.next_of[before.number] = job, min(30_000.0, rng.lognormvariate(7.3, 0.8))
        before = job
        prompt += output + tool


def first_of(made: Workload) -> Sequence[Job]:
    """The requests that nothing calls forth, in order of arrival."""
    followers = {job.number for job, _ in made.next_of.values()}
    return sorted((job for job in made.jobs if job.number not in followers), key=lambda job: job.arrival)
