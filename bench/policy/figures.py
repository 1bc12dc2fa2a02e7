"""What a run came to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from statistics import fmean, median
from typing import Any

from bench.policy.job import Job
from bench.policy.limits import alone_ms
from bench.policy.server import Server


@dataclass(frozen=True)
class Objectives:
    """What a request must meet to count as good."""

    ttft_ms: float = 1000.0
    prefill_tokens_per_s: float = 4000.0
    """The time to the first token may grow with the prompt, at this rate."""
    tpot_ms: float = 80.0

    def met(self, job: Job) -> bool:
        """Whether a request met them."""
        return not job.failure and self.in_time(
            job.prompt, job.output, job.first_token - job.arrival, job.finished - job.arrival
        )

    def in_time(self, prompt: int, output: int, first: float, last: float) -> bool:
        """Whether a request of so many tokens did whose first and last token came so many ms after it."""
        if first > self.ttft_ms + prompt / self.prefill_tokens_per_s * 1000:
            return False
        return last - first <= self.tpot_ms * max(output - 1, 1)


def percentile(values: Sequence[float], level: float) -> float:
    """The smallest value that `level` of all do not exceed (inf where too many have no end)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(level * len(ordered)))]


def _fairness(jobs: Sequence[Job], servers: Sequence[Server]) -> float:
    """How much the worst-served key below its fair share is slowed, against the median of the keys (1: as
    much). A key is slowed by what its requests take over what they would take alone on the fastest server."""
    specs = {server.spec for server in servers}
    by_key: dict[str, list[Job]] = defaultdict(list)
    for job in jobs:
        by_key[job.key].append(job)
    if len(by_key) < 3:
        return 1.0
    work = {key: sum(job.prompt + job.output for job in of) for key, of in by_key.items()}
    fair = sum(work.values()) / len(work)

    def slowdown(of: Sequence[Job]) -> float:
        done = [job for job in of if not job.failure]
        if not done:
            return inf
        return fmean(
            (job.finished - job.arrival) / min(alone_ms(job, spec) for spec in specs) for job in done
        )

    slow = {key: slowdown(of) for key, of in by_key.items() if len(of) >= 10}
    if len(slow) < 3:
        return 1.0
    usual = median(slow.values())
    return max((value / usual for key, value in slow.items() if work[key] <= fair), default=1.0)


def of_run(jobs: Sequence[Job], servers: Sequence[Server], objectives: Objectives) -> dict[str, Any]:
    """The figures of a run. Times in s. A request that failed has no end: in `p50` and `p99` it counts as
    infinitely slow; `p99_done` looks at completed ones only."""
    count = len(jobs)
    done = [job for job in jobs if not job.failure]
    span = max(max(job.arrival for job in jobs) - jobs[0].arrival, 1.0) / 1000
    end = max(job.finished for job in jobs)
    latencies = [inf if job.failure else job.finished - job.arrival for job in jobs]
    first = [inf if job.failure else job.first_token - job.arrival for job in jobs]
    waits = [
        inf if job.failure == "waited" else 0.0 if job.failure else job.sent - job.arrival for job in jobs
    ]
    good = sum(map(objectives.met, jobs))
    shares: dict[int, int] = defaultdict(int)
    for job in jobs:
        if job.server >= 0:
            shares[job.server] += job.prompt + job.output
    tokens = sum(shares.values())
    reasons: dict[str, int] = defaultdict(int)
    for job in jobs:
        reasons[job.failure] += 1
    return {
        "goodput": good / span,
        "good_share": good / count,
        "p50_s": percentile(latencies, 0.5) / 1000,
        "p99_s": percentile(latencies, 0.99) / 1000,
        "p99_done_s": percentile([value for value in latencies if value < inf] or [inf], 0.99) / 1000,
        "mean_done_s": fmean(value for value in latencies if value < inf) / 1000 if done else inf,
        "ttft_p50_s": percentile(first, 0.5) / 1000,
        "ttft_p99_s": percentile(first, 0.99) / 1000,
        "wait_p99_s": percentile(waits, 0.99) / 1000,
        "completed_qps": len(done) / max(span, 1e-3),
        "success": len(done) / count,
        "memory_share": reasons["memory"] / count,
        "refused_share": (reasons["waited"] + reasons["gone"]) / count,
        "preempted_share": sum(server.engine.counters.preemptions for server in servers) / count,
        "crashes": sum(server.crashes for server in servers),
        "utilisation": fmean(server.engine.counters.busy for server in servers) / end,
        "largest_share": max(shares.values()) / tokens if tokens else 0.0,
        "prefix_hits": _hits(servers),
        "worst_key": _fairness(jobs, servers),
    }


def _hits(servers: Sequence[Server]) -> float:
    asked = sum(server.engine.counters.prefix_queries for server in servers)
    return sum(server.engine.counters.prefix_hits for server in servers) / asked if asked else 0.0


def combine(runs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Mean over the seeds, and the least and most of the figures that are compared."""
    found: dict[str, Any] = {name: fmean(run[name] for run in runs) for name in runs[0]}
    for name in ("goodput", "good_share", "p99_s", "memory_share"):
        if name in found:
            found[f"{name}_seeds"] = [run[name] for run in runs]
    return found
