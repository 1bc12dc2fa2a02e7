"""Bounds of requests and of their wait: `limits`, `queue`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import Field

from tokenweir.config.quantities import ByteSize, Duration
from tokenweir.config.section import Section
from tokenweir.contract.enums import Priority, QueueTrigger


class QueueOrderRule(StrEnum):
    """In which order waiting requests are served."""

    AUTO = "auto"
    """`score` under the policy `hybrid`, else `fair`."""
    FAIR = "fair"
    FIFO = "fifo"
    SCORE = "score"


ClassWeight = Annotated[float, Field(gt=0, le=1000, description="against the other classes'")]
ClassFloor = Annotated[
    float,
    Field(ge=0, le=0.5, description="share of the work that it is served at least while it has waiters"),
]


class QueueClassConfig(Section):
    """The waiting requests of one priority class; null: the queue's own bound holds."""

    weight: ClassWeight = 2
    floor: ClassFloor = 0.1
    max_waiting: Annotated[int | None, Field(ge=0, le=1_000_000, description="for a model")] = None
    max_wait: Annotated[Duration | None, Field(description="longest wait")] = None
    max_bytes: Annotated[ByteSize | None, Field(description="in one gateway")] = None


class HighClassConfig(QueueClassConfig):
    """Waiting requests of high priority."""

    weight: ClassWeight = 4


class LowClassConfig(QueueClassConfig):
    """Waiting requests of low priority."""

    weight: ClassWeight = 1
    floor: ClassFloor = 0.05


class QueueConfig(Section):
    """The wait when no backend can take a request."""

    order: Annotated[
        QueueOrderRule,
        Field(
            description="fair: keys share alike, short work first, by the weights of class and key; fifo: as "
            "they came; score: hybrid's, short outputs first; auto: score under the policy hybrid, else fair"
        ),
    ] = QueueOrderRule.AUTO
    trigger: Annotated[
        QueueTrigger,
        Field(
            description="room: no backend has room for it; memory: also when the memory use of all is over "
            "`trigger_memory`, as in the article"
        ),
    ] = QueueTrigger.ROOM
    trigger_memory: Annotated[float, Field(gt=0, le=1, description="memory use for `trigger: memory`")] = 0.9
    window: Annotated[
        int,
        Field(
            ge=0, le=8, description="so many behind the first may pass it while no backend has room for it"
        ),
    ] = 8
    pass_for: Annotated[
        Duration, Field(le=60_000, description="then the backend that it can use soonest is held for it")
    ] = 2000
    max_waiting: Annotated[
        int, Field(ge=0, le=1_000_000, description="requests that may wait for a model; more get a 429")
    ] = 1000
    max_wait: Annotated[Duration, Field(description="longest wait before a 429")] = 30_000
    max_bytes: Annotated[
        ByteSize, Field(description="of all requests that wait in one gateway; more get a 429")
    ] = 256 * 1024**2
    early_hints: Annotated[
        int,
        Field(
            ge=0,
            le=4,
            description="103 answers with position and wait at most, for who asks for them; 0: none",
        ),
    ] = 4
    high: HighClassConfig = HighClassConfig()
    normal: QueueClassConfig = QueueClassConfig()
    low: LowClassConfig = LowClassConfig()

    def longest_wait(self, priority: Priority) -> int:
        """Longest wait of a priority class, ms."""
        classes = {Priority.HIGH: self.high, Priority.NORMAL: self.normal, Priority.LOW: self.low}
        own = classes[priority].max_wait
        return self.max_wait if own is None else own


class LimitConfig(Section):
    """Limits of requests."""

    body_max: Annotated[ByteSize, Field(description="largest request body")] = 64 * 1024**2
    body_memory: Annotated[ByteSize, Field(description="bodies up to this stay in memory")] = 4 * 1024**2
    deadline: Annotated[Duration | None, Field(description="longest whole request; null: none")] = None
    idle: Annotated[Duration, Field(ge=1000, description="longest gap between two bytes of an answer")] = (
        600_000
    )
    tries: Annotated[int, Field(ge=1, le=10, description="backends that one request may be offered to")] = 3
    connections: Annotated[int, Field(ge=64, le=1_000_000, description="per nginx worker")] = 16_384
    quarantine: Annotated[
        Duration, Field(description="how long a prompt that met two crashes is refused")
    ] = 600_000
    drain: Annotated[
        Duration, Field(description="how long streams may finish: after a reload, and on a removed backend")
    ] = 600_000
