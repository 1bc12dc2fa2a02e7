"""What could be found in a cache: in one without end, and in one as large as all engines' together that
forgets what was used longest ago, as engines do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from math import inf

from bench.policy.job import Job


def hit_rate(jobs: Sequence[Job], hash_tokens: int, capacity: float = inf) -> float:
    """Share of the prompts' tokens that such a cache holds, when the requests come in this order and each
    leaves its blocks at once. `capacity`: tokens."""
    cache: OrderedDict[Hashable, None] = OrderedDict()
    most = capacity / hash_tokens
    asked = found = 0
    for job in jobs:
        asked += job.prompt
        # At least one token is always computed.
        for key in job.hashes[: (job.prompt - 1) // hash_tokens]:
            if key not in cache:
                break
            found += hash_tokens
        for key in reversed(job.hashes):
            cache[key] = None
            cache.move_to_end(key)
        while len(cache) > most:
            cache.popitem(last=False)
    return found / asked if asked else 0.0
