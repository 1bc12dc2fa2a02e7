"""The figures and bars of the faults bench."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bench.faults.accounting import Account, EngineFault, Kind, account
from bench.faults.client import Outcome, Record
from bench.faults.stage import Stage
from bench.faults.witness import Seen
from bench.overhead.figures import quantile
from bench.report import Bar


def closing_ms(record: Record, seen: Seen) -> float | None:
    """How long after its client left the witness's connection was closed, in ms.

    None when the answer was whole before the client left. An answer that ran on to its end after the client
    had left counts until that end: the connection was not closed.
    """
    if record.outcome is not Outcome.LEFT:
        return None
    ended = seen.closed if seen.closed is not None else seen.done
    if ended is None:
        return math.inf
    if ended <= record.ended:
        return None if seen.closed is None else 0.0
    return (ended - record.ended) * 1000


def closings(records: Iterable[Record], seen: Mapping[str, Sequence[Seen]]) -> list[float]:
    """All closing times of the clients that left a request which the witness had, in ms."""
    found = (closing_ms(record, each) for record in records for each in seen.get(record.id, ()))
    return [value for value in found if value is not None]


def ejections(faults: Iterable[EngineFault]) -> list[float]:
    """Seconds from the freezing of an engine to its ejection; infinite where it was never ejected."""
    return [
        math.inf if fault.ejected is None else fault.ejected - fault.began
        for fault in faults
        if fault.kind is Kind.FREEZE
    ]


def figures(
    records: Sequence[Record],
    stage: Stage,
    faults: Sequence[EngineFault],
    executed: Mapping[str, Sequence[str]],
    seen: Mapping[str, Sequence[Seen]],
) -> tuple[dict[str, Any], Account]:
    """Return the figures of these requests and faults, and the account that they come from."""
    ids = {record.id for record in records}
    summed = account(
        records, stage.kills, stage.faults, {key: value for key, value in executed.items() if key in ids}
    )
    closed, frozen = closings(records, seen), ejections(faults)
    result: dict[str, Any] = {
        "requests": summed.requests,
        "answered": summed.answered,
        "left": summed.left,
        "lost": len(summed.lost),
        "executed_twice": len(summed.executed_twice),
        "excused": dict(summed.excused),
        "frozen_ejected_s": round(max(frozen), 2) if frozen else None,
        "upstream_closed_ms_p99": round(quantile(closed, 0.99), 1) if closed else None,
        "upstream_closings": len(closed),
        "by_backend": dict(Counter(record.backend for record in records if record.backend)),
        "lost_by_status": dict(Counter(f"{record.outcome} {record.status}" for record in summed.lost)),
    }
    return result, summed


def bars(overall: Mapping[str, Any], quick: bool) -> list[Bar]:
    """The bars; a quick run is held to its own number of requests."""
    return [
        Bar("requests", overall["requests"], ">=", 1000 if quick else 10_000),
        Bar("lost", overall["lost"], "==", 0),
        Bar("executed twice", overall["executed_twice"], "==", 0),
        Bar("in flight left at the end", overall["inflight_left"], "==", 0),
        Bar("frozen engine out of rotation, s", overall["frozen_ejected_s"], "<=", 5),
        Bar("upstream closed after its client left, p99 ms", overall["upstream_closed_ms_p99"], "<=", 100),
    ]
