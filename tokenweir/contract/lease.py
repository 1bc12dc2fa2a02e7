"""`tw:gateway:<id>`: what a gateway has in flight, ten times a second."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweir.contract.enums import Priority
from tokenweir.contract.record import Document, Record
from tokenweir.contract.values import Count, Id, ModelName, Positive


class BackendLoad(Record):
    """What one gateway has in flight on one backend; the members of `tw_load` in `core/backend/load.lua`."""

    n: Positive = 0
    held: Positive = 0
    remaining: Positive = 0
    variance: Positive = 0
    prefill: Positive = 0
    flowing: Positive = 0
    buckets: Annotated[
        dict[str, tuple[float, float, float]],
        Field(description="bucket number (0-12) -> number, held tokens, variance; empty ones are left out"),
    ] = {}


class QueueState(Record):
    """Requests that wait for one model in one gateway."""

    depth: Count = 0
    oldest_ms: Positive = 0
    oldest_by_priority: Annotated[
        dict[Priority, Positive], Field(description="of each class in which somebody waits, ms")
    ] = {}
    front: Annotated[
        Positive | None,
        Field(
            description="where its first one stands in the order, on a scale of all gateways; null: not told"
        ),
    ] = None
    clock: Annotated[Positive, Field(description="how far its order has come, on the same scale")] = 0


class KeyUse(Record):
    """What one API key has used in the current minute at one gateway."""

    minute: Count
    requests: Count = 0
    tokens: Count = 0


class Lease(Document):
    """`tw:gateway:<id>`: a gateway's facts, every 100 ms, gone after 3 s."""

    id: Id
    instance: Annotated[
        str,
        Field(max_length=128, description="which gateway wrote it: two of one `gateway_id` differ in this"),
    ] = ""
    time_ms: Count
    sequence: Count
    snapshot_sequence: Count = 0
    backends: dict[Id, BackendLoad] = {}
    arrivals: Annotated[dict[ModelName, Count], Field(description="requests since the gateway started")] = {}
    queue: dict[ModelName, QueueState] = {}
    ejected: Annotated[dict[Id, str], Field(description="backend -> why")] = {}
    keys: dict[Id, KeyUse] = {}
