"""Bounds of requests and of their wait: `limits`, `queue`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweir.config.quantities import ByteSize, Duration
from tokenweir.config.section import Section


class QueueConfig(Section):
    """The wait when no backend can take a request."""

    max_waiting: Annotated[
        int, Field(ge=0, le=1_000_000, description="requests that may wait for a model; more get a 429")
    ] = 1000
    max_wait: Annotated[Duration, Field(description="longest wait before a 429")] = 30_000
    max_bytes: Annotated[
        ByteSize, Field(description="of all requests that wait in one gateway; more get a 429")
    ] = 256 * 1024**2


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
    drain: Annotated[Duration, Field(description="how long streams may finish after a reload")] = 600_000
