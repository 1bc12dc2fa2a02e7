"""`tw:gateway:<id>`: what a gateway has in flight, ten times a second."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweir.contract.enums import Priority
from tokenweir.contract.record import Document, Record
from tokenweir.contract.values import Count, Id, ModelName, Positive


class BackendLoad(Record):
    """What one gateway has in flight on one backend; the members of `tw_load` in `core/backend/load.lua`."""

    n: Annotated[Positive, Field(description="sequences; a request with several choices is as many")] = 0
    held: Annotated[Positive, Field(description="KV tokens that they hold now")] = 0
    remaining: Annotated[Positive, Field(description="output tokens that they are expected to add")] = 0
    variance: Annotated[Positive, Field(description="of the remaining, tokens squared")] = 0
    prefill: Annotated[
        Positive, Field(description="prompt tokens that are not computed yet, less what is cached of them")
    ] = 0
    flowing: Annotated[Positive, Field(description="streams of which a byte has come")] = 0
    buckets: Annotated[
        dict[str, tuple[float, float, float]],
        Field(description="bucket number (0-12) -> number, held tokens, variance; empty ones are left out"),
    ] = {}


class QueueState(Record):
    """Requests that wait for one model in one gateway."""

    depth: Annotated[Count, Field(description="requests that wait")] = 0
    oldest_ms: Annotated[Positive, Field(description="how long the first of them has waited")] = 0
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
    """What one API key has used at one gateway, in the current minute and in the one before."""

    minute: Annotated[Count, Field(description="which one: minutes since 1970, by the gateway's clock")]
    requests: Annotated[Count, Field(description="that it began")] = 0
    tokens: Annotated[Count, Field(description="prompt and output together, as charged so far")] = 0
    requests_before: Annotated[Count, Field(description="`requests` of the minute before")] = 0
    tokens_before: Annotated[Count, Field(description="`tokens` of the minute before")] = 0


class Lease(Document):
    """`tw:gateway:<id>`: a gateway's facts, every 100 ms, gone after 3 s."""

    id: Annotated[Id, Field(description="the `gateway_id`")]
    instance: Annotated[
        str,
        Field(max_length=128, description="which gateway wrote it: two of one `gateway_id` differ in this"),
    ] = ""
    time_ms: Annotated[Count, Field(description="wall time at which it was written")]
    sequence: Annotated[
        Count, Field(description="grows with every lease of a gateway, over its restarts too")
    ]
    snapshot_sequence: Annotated[Count, Field(description="of the snapshot that it serves by; 0: none")] = 0
    backends: Annotated[
        dict[Id, BackendLoad], Field(description="backends on which something is in flight")
    ] = {}
    arrivals: Annotated[dict[ModelName, Count], Field(description="requests since the gateway started")] = {}
    queue: Annotated[dict[ModelName, QueueState], Field(description="models for which somebody waits")] = {}
    ejected: Annotated[
        dict[Id, str], Field(description="backends that passive health has taken out -> why")
    ] = {}
    tried: Annotated[
        dict[Id, str],
        Field(description="backends that it had taken out, and that single requests try again -> why it had"),
    ] = {}
    keys: Annotated[dict[Id, KeyUse], Field(description="keys with a limit -> what they have used")] = {}
