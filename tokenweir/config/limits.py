"""Bounds of requests and of their wait: `limits`, `queue`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Self

from pydantic import Field, model_validator

from tokenweir.config.quantities import TIME, ByteSize, Duration, InMs
from tokenweir.config.section import Section
from tokenweir.contract import names
from tokenweir.contract.enums import Priority, QueueTrigger
from tokenweir.contract.values import (
    BodyMs,
    ClassFloor,
    ClassWeight,
    EarlyHints,
    IdleMs,
    PassMs,
    QuarantineMs,
    Tries,
    Waiters,
    WaitMs,
)


class QueueOrderRule(StrEnum):
    """In which order waiting requests are served."""

    AUTO = "auto"
    """`score` under the policy `hybrid`, else `fair`."""
    FAIR = "fair"
    FIFO = "fifo"
    SCORE = "score"


Weight = Annotated[ClassWeight, Field(description="against the other classes'")]
Floor = Annotated[
    ClassFloor, Field(description="share of the work that it is served at least while it has waiters")
]
Wait = Annotated[WaitMs, InMs, TIME]


class QueueClassConfig(Section):
    """The waiting requests of one priority class; null: the queue's own bound holds."""

    weight: Weight = 2
    floor: Floor = 0.1
    max_waiting: Annotated[Waiters | None, Field(description="for a model")] = None
    max_wait: Annotated[Wait | None, Field(description="longest wait")] = None
    max_bytes: Annotated[ByteSize | None, Field(description="in one gateway")] = None


class HighClassConfig(QueueClassConfig):
    """Waiting requests of high priority."""

    weight: Weight = 4


class LowClassConfig(QueueClassConfig):
    """Waiting requests of low priority."""

    weight: Weight = 1
    floor: Floor = 0.05


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
            ge=0,
            le=names.QUEUE_WINDOW,
            description="so many behind the first may pass it while no backend has room for it",
        ),
    ] = names.QUEUE_WINDOW
    pass_for: Annotated[
        PassMs, InMs, TIME, Field(description="then the backend that it can use soonest is held for it")
    ] = 2000
    max_waiting: Annotated[
        Waiters, Field(description="requests that may wait for a model; more get a 429")
    ] = 1000
    max_wait: Annotated[Wait, Field(description="longest wait before a 429")] = 30_000
    max_bytes: Annotated[
        ByteSize, Field(description="of all requests that wait in one gateway; more get a 429")
    ] = 256 * 1024**2
    early_hints: Annotated[
        EarlyHints,
        Field(description="103 answers with position and wait at most, for who asks for them; 0: none"),
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
    body_memory: Annotated[
        ByteSize, Field(description="bodies up to this stay in memory; no more than `body_max` unless set")
    ] = 4 * 1024**2
    body_time: Annotated[
        BodyMs,
        InMs,
        TIME,
        Field(description="within it a body brings its rest, or 1 KiB for each second, or is given up"),
    ] = 60_000
    deadline: Annotated[Duration | None, Field(description="longest whole request; null: none")] = None
    idle: Annotated[IdleMs, InMs, TIME, Field(description="longest gap between two bytes of an answer")] = (
        600_000
    )
    tries: Annotated[Tries, Field(description="backends that one request may be offered to")] = 3
    connections: Annotated[
        int, Field(ge=64, le=1_000_000, description="per nginx worker; a request takes two")
    ] = 16_384
    quarantine: Annotated[
        QuarantineMs, InMs, TIME, Field(description="how long a prompt that met two crashes is refused")
    ] = 600_000
    drain: Annotated[
        Duration, Field(description="how long streams may finish: after a reload, and on a removed backend")
    ] = 600_000

    @model_validator(mode="after")
    def _memory_within_max(self) -> Self:
        if self.body_memory > self.body_max:
            if "body_memory" in self.model_fields_set:
                raise ValueError(
                    f"`body_memory` ({self.body_memory:,} bytes) is larger than `body_max` "
                    f"({self.body_max:,} bytes): leave it out, or give `body_max` more"
                )
            self.body_memory = self.body_max
        return self
