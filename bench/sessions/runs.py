"""Runs: one workload, one router, one seed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Final

from bench.policy import predictions
from bench.policy.figures import percentile
from bench.policy.rivals import RIVALS
from bench.policy.routing import Router
from bench.policy.server import Server, ServerSpec
from bench.policy.tokenweir_router import Tokenweir
from bench.sessions import conversations, ideal
from bench.sessions.conversations import Workload
from bench.sessions.simulation import Conversations

OWN: Final = "tokenweir"
BASELINES: Final = ("consistent_hash", "cache_aware", "least_outstanding")
ROUTERS: Final = (OWN, *BASELINES)
SERVERS: Final = 8
GPU, MODEL = "A100-80G", "llama-3-8b"


@dataclass(frozen=True)
class Size:
    """How much is run."""

    requests: int
    sessions: int
    seeds: tuple[int, ...]


QUICK: Final = Size(2000, 48, (1,))
FULL: Final = Size(6000, 72, (1, 2, 3))

RATE: Final = 2.0
"""Requests a second of the recorded conversations: some 24,000 prompt tokens a second."""
AGENTS_PER_MINUTE: Final = 90.0


def _router(name: str, servers: Sequence[Server], seed: int) -> Router:
    return Tokenweir(servers, seed, "predictive") if name == OWN else RIVALS[name](servers, seed)


def _servers(hash_tokens: int) -> list[Server]:
    return [Server(ServerSpec(GPU, MODEL, hash_tokens=hash_tokens)) for _ in range(SERVERS)]


def _hot_names(seed: int) -> Callable[[int], str]:
    """Names of sessions whose place on the ring is the first server's."""
    gateway = Tokenweir(_servers(conversations.AGENT_BLOCK), seed, "predictive")
    found: list[str] = []
    number = 0

    def name(k: int) -> str:
        nonlocal number
        while len(found) <= k:
            if gateway.home(f"hot-{number}") == 0:
                found.append(f"hot-{number}")
            number += 1
        return found[k]

    return name


def build(kind: str, size: Size, seed: int) -> Workload:
    """A workload by name."""
    if kind == "conversations":
        longest = ServerSpec(GPU, MODEL).kv_tokens
        return conversations.recorded(size.requests, RATE, seed, longest)
    if kind == "agents":
        return conversations.agents(size.sessions, AGENTS_PER_MINUTE, seed)
    return conversations.agents(size.sessions, AGENTS_PER_MINUTE, seed, name=_hot_names(seed))


def execute(kind: str, router_name: str, size: Size, seed: int) -> dict[str, Any]:
    """The figures of one run."""
    workload = build(kind, size, seed)
    servers = _servers(workload.hash_tokens)
    jobs = workload.jobs
    if router_name == OWN:
        for job, prediction in zip(jobs, predictions.trained(jobs, seed), strict=True):
            job.prediction = prediction
    Conversations(workload, servers, _router(router_name, servers, seed)).run()
    return figures(workload, servers)


def figures(workload: Workload, servers: Sequence[Server]) -> dict[str, Any]:
    """What a run came to. Shares are of the servers' busy time."""
    jobs = workload.jobs
    asked = sum(server.engine.counters.prefix_queries for server in servers)
    found = sum(server.engine.counters.prefix_hits for server in servers)
    ordered = sorted(jobs, key=lambda job: job.arrival)
    first = [job.first_token - job.arrival for job in jobs if not job.failure]
    busy = [server.engine.counters.busy for server in servers]
    backends: dict[Any, set[int]] = defaultdict(set)
    for job in jobs:
        backends[job.session].add(job.server)
    capacity = sum(server.capacity for server in servers)
    return {
        "requests": len(jobs),
        "failed": sum(bool(job.failure) for job in jobs),
        "hit_rate": found / asked if asked else 0.0,
        "ideal_infinite": ideal.hit_rate(ordered, workload.hash_tokens),
        "ideal_real_size": ideal.hit_rate(ordered, workload.hash_tokens, capacity),
        "ttft_p50_ms": percentile(first, 0.5),
        "ttft_p99_ms": percentile(first, 0.99),
        "largest_share": max(busy) / sum(busy),
        "load_over_mean": max(busy) / fmean(busy),
        "utilisation": fmean(busy) / max(job.finished for job in jobs),
        "backends_of_a_session": fmean(len(found_at) for found_at in backends.values()),
    }


def combine(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Means over the seeds, and the spread of what is compared."""
    found: dict[str, Any] = {name: fmean(run[name] for run in runs) for name in runs[0]}
    for name in ("hit_rate", "ttft_p99_ms"):
        found[f"{name}_seeds"] = [run[name] for run in runs]
    return found
