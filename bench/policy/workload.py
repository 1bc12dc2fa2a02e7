"""A scenario's requests: a stretch of a trace (or several), brought to a rate."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from bench.policy import traces
from bench.policy.job import Job
from bench.policy.traces import Asked


@dataclass(frozen=True)
class Burst:
    """For `seconds` from `at` on (both seconds), requests come `factor` times as fast."""

    at: float
    seconds: float
    factor: float


def _scaled(asked: Sequence[Asked], rate: float) -> list[float]:
    """Arrival times in ms at a mean rate; the trace's own unevenness stays."""
    begin = asked[0].at
    span = asked[-1].at - begin
    factor = len(asked) / rate / span if span > 0 else 0.0
    return [(request.at - begin) * factor * 1000 for request in asked]


def _with_bursts(arrivals: Sequence[float], bursts: Sequence[Burst]) -> list[float]:
    """Time runs faster through the bursts."""
    for burst in bursts:
        begin, length = burst.at * 1000, burst.seconds * 1000 * burst.factor
        moved = []
        for at in arrivals:
            if at <= begin:
                moved.append(at)
            elif at < begin + length:
                moved.append(begin + (at - begin) / burst.factor)
            else:
                moved.append(at - length + length / burst.factor)
        arrivals = moved
    return list(arrivals)


def build(
    shares: dict[str, float],
    *,
    count: int,
    rate: float,
    seed: int,
    longest: int,
    bursts: Sequence[Burst] = (),
) -> tuple[list[Job], int]:
    """The requests of a scenario in order of arrival, and how many of the trace were left out because no
    server of the fleet could hold them (`longest` tokens).

    `shares`: trace -> share of the requests. `rate`: requests a second, on average outside of bursts."""
    whole = sum(shares.values())
    rows: list[tuple[float, str, Asked]] = []
    left_out = 0
    for name, share in shares.items():
        wanted = max(2, round(count * share / whole))
        asked = traces.stretch(name, wanted, seed)
        fits = [request for request in asked if request.prompt + request.output <= longest]
        left_out += len(asked) - len(fits)
        rows += zip(_scaled(fits, rate * share / whole), [name] * len(fits), fits, strict=True)
    rows.sort(key=lambda row: row[0])
    arrivals = _with_bursts([at for at, _, _ in rows], bursts)
    return _jobs(arrivals, [(name, request) for _, name, request in rows], seed), left_out


def from_requests(rows: Sequence[tuple[str, Asked]], rate: float, seed: int) -> list[Job]:
    """The requests of one log (its name with each) at a mean rate."""
    return _jobs(_scaled([request for _, request in rows], rate), rows, seed)


def _jobs(arrivals: Sequence[float], rows: Sequence[tuple[str, Asked]], seed: int) -> list[Job]:
    rng = random.Random(f"sessions/{seed}")
    jobs = []
    for number, (at, (name, request)) in enumerate(zip(arrivals, rows, strict=True)):
        # Where the trace tells no session each request is one of its own.
        session = (name, request.session) if request.session is not None else None
        key = request.key or f"{name}-{rng.randrange(20)}"
        jobs.append(
            Job(
                number,
                at,
                request.prompt,
                request.output,
                session=session,
                key=key,
                hashes=request.hashes,
            )
        )
    return jobs
