"""Who is to blame for a request that failed: the words *lost* and *executed twice*, exactly.

*Lost*: answered with an error or not at all although a usable backend was there (in this bench there always
is one) and the request had not been sent to a part then killed, frozen or made to fail; clients that left
excepted. *Executed twice*: two engines began it, or one engine began it twice.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from bench.faults.client import Outcome, Record

SLACK_S = 0.05
"""Between the bench's clock reading and the moment at which a signal works."""


class Kind(StrEnum):
    """What is done to an engine."""

    CRASH = "crash"
    FREEZE = "freeze"
    FAIL = "fail"


@dataclass(frozen=True)
class WorkerKill:
    """A gateway's worker ended with SIGKILL, and the client ports that it held just before."""

    at: float
    ports: frozenset[int]

    def excuses(self, record: Record) -> bool:
        """Whether the request was in this worker's hands."""
        return record.port in self.ports and record.started <= self.at + SLACK_S <= record.ended + 2 * SLACK_S


@dataclass
class EngineFault:
    """One fault of one engine. Times are CLOCK_MONOTONIC in s."""

    backend: str
    kind: Kind
    began: float
    ended: float = math.inf
    ejected: float | None = None
    """When the gateway first said that it sends nothing more there."""

    def open(self, backend: str) -> bool:
        """Whether this fault still holds this engine."""
        return self.backend == backend and math.isinf(self.ended)

    def excuses(self, record: Record, engines: Iterable[str]) -> bool:
        """Whether the request was sent to this engine, and the fault is what ended it.

        Sent before a crash: the crash is to blame. Sent after it: the connection was refused, so another
        engine should have had it. A frozen engine still takes connections, and a failing one still answers:
        nobody can know before the first signs, so a request sent there until the ejection is excused too.
        """
        if self.backend not in {record.backend, *engines}:
            return False
        if record.ended < self.began - SLACK_S:
            return False
        if self.kind is Kind.CRASH:
            return record.started <= self.began + SLACK_S
        if self.kind is Kind.FREEZE:
            last = self.ended if self.ejected is None else self.ejected
            return record.started <= last + SLACK_S
        return record.started <= self.ended + SLACK_S


@dataclass
class Account:
    """The figures of one run."""

    requests: int = 0
    answered: int = 0
    left: int = 0
    excused: Counter[str] = field(default_factory=Counter)
    lost: list[Record] = field(default_factory=list)
    executed_twice: list[str] = field(default_factory=list)


def account(
    records: Sequence[Record],
    kills: Sequence[WorkerKill],
    faults: Sequence[EngineFault],
    executed: Mapping[str, Sequence[str]],
) -> Account:
    """Sum up a run.

    Args:
        records: what became of every request.
        kills: the workers that were killed.
        faults: what was done to the engines.
        executed: request id -> the engines that began it, one entry per beginning.
    """
    result = Account(requests=len(records))
    for record in records:
        if record.outcome is Outcome.OK:
            result.answered += 1
        elif record.outcome is Outcome.LEFT:
            result.left += 1
        elif any(kill.excuses(record) for kill in kills):
            result.excused["worker killed"] += 1
        elif blamed := [fault for fault in faults if fault.excuses(record, executed.get(record.id, ()))]:
            result.excused[f"engine: {blamed[0].kind}"] += 1
        else:
            result.lost.append(record)
    result.executed_twice = sorted(request for request, engines in executed.items() if len(engines) > 1)
    return result
