"""The rules of other routers that go by what servers' prefix caches hold, by their published formulas."""

from __future__ import annotations

from collections.abc import Sequence

from bench.policy.job import Job
from bench.policy.routing import Router
from bench.policy.server import Server


class _Prefixes(Router):
    """What of a prompt each server has in its prefix cache. Routers keep trees or event streams of that; here
    they see the truth, which flatters them."""

    def overlap(self, job: Job, i: int) -> int:
        """Prompt tokens that server i has."""
        if not job.hashes:
            return 0
        server = self.servers[i]
        size = server.spec.hash_tokens
        return server.engine.memory.cache.match(job.hashes, (job.prompt - 1) // size) * size


class LlmD(_Prefixes):
    """llm-d's default scorers, each 0 to 1: `1 - kv`, `(most - queue) / (most - least)`, prefix match; its
    metrics come every 50 ms."""

    name = "llm_d"
    poll_ms = 50.0

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """Highest sum of scores, among equals any."""
        readings = self.readings
        queues = [readings[i].waiting for i in candidates]
        most, least = max(queues), min(queues)

        def score(i: int) -> float:
            queue = (most - readings[i].waiting) / (most - least) if most > least else 1.0
            return (1 - readings[i].kv) + queue + self.overlap(job, i) / job.prompt

        return max(candidates, key=lambda i: (score(i), self.random.random()))


class Dynamo(_Prefixes):
    """NVIDIA Dynamo's cost: `max(prefill blocks active + new prompt blocks - overlap, 0) + decode blocks +
    new blocks`."""

    name = "dynamo"
    BLOCK = 16

    def __init__(self, servers: Sequence[Server], seed: int) -> None:
        super().__init__(servers, seed)
        self._prefill = [0.0] * self.count
        self._decode = [0.0] * self.count
        self._own: dict[int, tuple[float, float]] = {}

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """Least cost, among equals any."""
        blocks = job.prompt / self.BLOCK

        def cost(i: int) -> float:
            fresh = blocks - self.overlap(job, i) / self.BLOCK
            return max(self._prefill[i] + fresh, 0.0) + self._decode[i] + blocks

        return min(candidates, key=lambda i: (cost(i), self.random.random()))

    def taken(self, job: Job, chosen: int, now: float) -> None:
        """Its blocks are active."""
        blocks = job.prompt / self.BLOCK
        fresh = blocks - self.overlap(job, chosen) / self.BLOCK
        self._own[job.number] = fresh, blocks
        self._prefill[chosen] += fresh
        self._decode[chosen] += blocks

    def first_token(self, job: Job, now: float) -> None:
        """Its prefill is done."""
        fresh, blocks = self._own[job.number]
        self._prefill[job.server] -= fresh
        self._own[job.number] = 0.0, blocks

    def forget(self, job: Job, server: int) -> None:
        """Take it off."""
        fresh, blocks = self._own.pop(job.number)
        self._prefill[server] -= fresh
        self._decode[server] -= blocks


class CacheAware(_Prefixes):
    """SGLang's family: where `max - min > 64` and `max > 1.5 min` requests the shortest queue; else the best
    prefix match above 0.3 of the prompt; else the emptiest tree."""

    name = "cache_aware"

    def pick(self, job: Job, now: float, candidates: Sequence[int]) -> int:
        """By balance, prefix or tree."""
        inflight = self.inflight
        most, least = max(inflight[i] for i in candidates), min(inflight[i] for i in candidates)
        if most - least > 64 and most > 1.5 * least:
            return min(candidates, key=lambda i: inflight[i])
        best = max(candidates, key=lambda i: self.overlap(job, i))
        if self.overlap(job, best) > 0.3 * job.prompt:
            return best
        tree = [len(self.servers[i].engine.memory.cache) for i in range(self.count)]
        return min(candidates, key=lambda i: (tree[i], self.random.random()))
