"""`tw:snapshot`: what the leader sidecar decides, every tick."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweir.contract import names
from tokenweir.contract.enums import Policy, QueueOrder, QueueTrigger, Role, State
from tokenweir.contract.record import Document, Record
from tokenweir.contract.values import (
    Bytes,
    ClassFloor,
    ClassWeight,
    Count,
    EarlyHints,
    Id,
    MaxTokens,
    ModelName,
    PassMs,
    Positive,
    Share,
    Waiters,
    WaitMs,
)


class Cost(Record):
    """What work costs on a backend, in ms (docs/architecture.md).

    A step with n sequences and kv tokens held takes `base + per_sequence * n + per_kv_token * kv`.
    """

    prefill: Annotated[float, Field(gt=0, le=1e4, description="ms per prompt token")]
    base: Annotated[float, Field(gt=0, le=1e5, description="ms per decode step")]
    per_sequence: Annotated[float, Field(ge=0, le=1e4, description="ms per sequence in the step")]
    per_kv_token: Annotated[float, Field(ge=0, le=1e2, description="ms per KV token held")]


class Foreign(Record):
    """Load on a backend that did not come through a gateway."""

    requests: Annotated[Positive, Field(description="in flight there")] = 0
    tokens: Annotated[Positive, Field(description="KV tokens that these hold, as estimated")] = 0


class Backend(Record):
    """One inference server as the leader sidecar sees it."""

    id: Annotated[Id, Field(description="its name in headers, logs and metrics")]
    host: Annotated[str, Field(description="IP address, resolved by the sidecar")]
    port: Annotated[int, Field(ge=1, le=65535, description="TCP port")]
    tls: Annotated[bool, Field(description="whether it speaks TLS")] = False
    tls_verify: Annotated[bool, Field(description="whether its certificate is checked")] = True
    sni: Annotated[str, Field(max_length=253, description="server name for TLS; empty without TLS")] = ""
    host_header: Annotated[str, Field(max_length=260, description="Host for the engine")] = ""
    credential_group: Annotated[
        str,
        Field(
            max_length=64,
            description="backends of one group accept the same API key and Host; a retry stays inside",
        ),
    ] = ""
    wants_key: Annotated[
        str,
        Field(
            max_length=1024,
            description="name of the API key that it wants, as in the gateway's file of keys; without that "
            "key it gets no request. Empty: none, the client's own Authorization goes through",
        ),
    ] = ""
    models: Annotated[dict[ModelName, ModelName], Field(description="public name -> the engine's name")]
    role: Annotated[
        Role, Field(description="who serves: the next role only where none of the one before can")
    ] = Role.ACTIVE
    state: Annotated[State, Field(description="only `ready` gets requests")]
    admit: Annotated[Share, Field(description="share of its fair share that it may get (ramp)")] = 1
    weight: Annotated[
        float, Field(gt=0, le=1e6, description="the operator's preference: costs are divided by it")
    ] = 1
    precision: Annotated[
        str, Field(max_length=16, description="of its weights: the variant; empty: not known")
    ] = ""
    engine: Annotated[
        str, Field(max_length=32, description="kind of server, as in `backends[].engine`; empty: not known")
    ] = ""
    memory: Annotated[
        Share | None, Field(description="memory use: KV where the engine tells it, else the card's")
    ] = None
    memory_age_ms: Annotated[Positive | None, Field(description="age of `memory` at publication")] = None
    load: Annotated[Positive | None, Field(description="running + waiting requests, as the engine says")] = (
        None
    )
    load_age_ms: Annotated[Positive | None, Field(description="age of `load` at publication")] = None
    capacity: Annotated[int | None, Field(gt=0, le=10**12, description="KV tokens")] = None
    context: Annotated[int | None, Field(gt=0, le=10**9, description="longest prompt + output, tokens")] = (
        None
    )
    concurrency: Annotated[
        int | None, Field(gt=0, le=10**6, description="most requests at once where no capacity is known")
    ] = None
    lets_in: Annotated[
        int | None,
        Field(
            gt=0,
            le=10**6,
            description="most sequences at once while the engine itself keeps requests waiting, or is full "
            "by its own telling; null: it does neither",
        ),
    ] = None
    kv_bytes: Annotated[
        int | None,
        Field(
            gt=0, le=10**9, description="KV bytes of a token, where its cache can be moved; null: it cannot"
        ),
    ] = None
    cost: Annotated[Cost, Field(description="what work costs there")]
    foreign: Annotated[Foreign, Field(description="load that came past the gateways")] = Foreign()
    low: Annotated[
        float | None,
        Field(ge=0, le=1000, description="the article's score for short outputs; null: memory not known"),
    ] = None
    high: Annotated[
        float | None, Field(ge=0, le=1000, description="the article's score for long outputs")
    ] = None
    progress_age_ms: Annotated[
        Positive | None, Field(description="ms since the engine's own counters last moved while it had work")
    ] = None
    scrape_failures: Annotated[Count, Field(description="failed scrapes in a row")] = 0
    refused: Annotated[
        bool, Field(description="the last look at it found no one there: its port was closed")
    ] = False
    late: Annotated[
        bool,
        Field(
            description="it is down only because it did not answer in time: frozen, or merely busy. Where no "
            "other backend is left, one request may try it"
        ),
    ] = False
    reasons: Annotated[
        list[str], Field(max_length=24, description="why it has this state and these scores")
    ] = []


class ModelControl(Record):
    """What holds for one model now, beyond the state of its backends (docs/control.md)."""

    level: Annotated[int, Field(ge=0, le=4, description="the highest level of the breaker that holds")] = 0
    refuse_new: Annotated[bool, Field(description="level 1: no new sessions")] = False
    drop_low: Annotated[bool, Field(description="level 2: low priority is dropped, waiting ones first")] = (
        False
    )
    fallback: Annotated[bool, Field(description="level 4: backends of the role `fallback` serve")] = False
    burst: Annotated[bool, Field(description="answers are kept short")] = False
    precision: Annotated[
        str, Field(max_length=16, description="the variant that is preferred; empty: none")
    ] = ""
    load: Annotated[
        Share | None, Field(description="memory use of its usable backends, by their capacity")
    ] = None
    retry_after_ms: Annotated[
        Positive | None, Field(description="when a refused client may find room, by the drain rate")
    ] = None
    reasons: Annotated[list[str], Field(max_length=8, description="why all that holds")] = []


class QueueClass(Record):
    """How the waiting requests of one priority class are served, and their bounds; null: only the queue's."""

    weight: Annotated[ClassWeight, Field(description="against the other classes'")] = 2
    floor: Annotated[
        ClassFloor, Field(description="share of the work that it is served at least while it has waiters")
    ] = 0.1
    max_waiting: Annotated[
        Waiters | None, Field(description="requests of the class for one model in one gateway")
    ] = None
    max_wait_ms: Annotated[WaitMs | None, Field(description="longest wait in the class")] = None
    max_bytes: Annotated[
        Bytes | None, Field(description="of the class's waiting request bodies in one gateway")
    ] = None


class HighClass(QueueClass):
    """The class of high priority."""

    weight: Annotated[ClassWeight, Field(description="against the other classes'")] = 4


class LowClass(QueueClass):
    """The class of low priority."""

    weight: Annotated[ClassWeight, Field(description="against the other classes'")] = 1
    floor: Annotated[
        ClassFloor, Field(description="share of the work that it is served at least while it has waiters")
    ] = 0.05


class QueueClasses(Record):
    """The priority classes of the queue."""

    high: Annotated[HighClass, Field(description="of `X-Priority: high`")] = HighClass()
    normal: Annotated[QueueClass, Field(description="of `normal`, and of requests without that header")] = (
        QueueClass()
    )
    low: Annotated[LowClass, Field(description="of `low`")] = LowClass()


class QueueLimits(Record):
    """The wait when nothing is feasible: order and bounds."""

    order: Annotated[QueueOrder, Field(description="who of those that wait is next")] = QueueOrder.FAIR
    trigger: Annotated[
        QueueTrigger,
        Field(
            description="room: requests wait where no backend has room; memory: also where the memory use of "
            "all is over `trigger_memory`"
        ),
    ] = QueueTrigger.ROOM
    trigger_memory: Annotated[
        Share, Field(description="memory use from which `memory` lets requests wait")
    ] = 0.9
    window: Annotated[
        int, Field(ge=0, le=names.QUEUE_WINDOW, description="waiters that may pass the first one")
    ] = names.QUEUE_WINDOW
    pass_ms: Annotated[PassMs, Field(description="after this a backend is held for the first one")] = 2000
    max_waiting: Annotated[Waiters, Field(description="for one model in one gateway")] = 1000
    max_wait_ms: Annotated[WaitMs, Field(description="longest wait before a 429")] = 30_000
    max_bytes: Annotated[
        Bytes, Field(description="of the bodies of all requests that wait in one gateway")
    ] = 256 * 1024**2
    early_hints: Annotated[EarlyHints, Field(description="103 answers to one request; 0: none")] = 4
    classes: Annotated[QueueClasses, Field(description="what differs by priority")] = QueueClasses()


class PolicySettings(Record):
    """Numbers of the policies (docs/architecture.md)."""

    kv_cap: Annotated[
        float,
        Field(
            gt=0,
            le=1,
            description="held + prompt stays below this share of capacity, where full engines fail",
        ),
    ] = 0.9
    z: Annotated[
        float, Field(ge=0, le=10, description="standard deviations kept free, where full engines fail")
    ] = 2.0
    crowding: Annotated[
        float, Field(ge=0, le=1, description="growth of the predicted time with each request that is there")
    ] = 0.02
    stall: Annotated[
        float,
        Field(ge=0, le=10, description="weight of the time for which a prompt holds up each request there"),
    ] = 0.3
    common_deviation: Annotated[
        float,
        Field(
            ge=0, le=2, description="common relative error of the predictions, times the sum of the remaining"
        ),
    ] = 0.1
    score_all_up_to: Annotated[
        int, Field(ge=1, le=1024, description="candidates up to which all are compared")
    ] = 32
    sample: Annotated[int, Field(ge=1, le=256, description="beyond that, compared at random")] = 16
    class_threshold: Annotated[
        int, Field(ge=1, le=100_000, description="output tokens from which a request is high")
    ] = 50
    stay: Annotated[
        Share, Field(description="a session moves where it costs less by more than this share")
    ] = 0.2
    move_load: Annotated[
        float, Field(gt=0, le=1, description="memory use over which a session moves to its next choice")
    ] = 0.85
    return_load: Annotated[float, Field(gt=0, le=1, description="memory use below which it may return")] = 0.7
    return_ms: Annotated[
        int, Field(ge=0, le=3_600_000, description="and for how long it must have been below")
    ] = 60_000


class Snapshot(Document):
    """`tw:snapshot`: what the leader sidecar decided this tick."""

    fence: Annotated[int, Field(ge=0, description="the leader's fencing number; it never falls")]
    sequence: Annotated[int, Field(ge=0, description="grows with every snapshot, whoever leads")]
    time_ms: Annotated[int, Field(ge=0, description="wall time of publication")]
    policy: Annotated[Policy, Field(description="the policy that serves")] = Policy.PREDICTIVE
    shadow: Annotated[Policy | None, Field(description="policy whose choice is only logged")] = None
    level: Annotated[int, Field(ge=0, le=4, description="the highest of all models")] = 0
    burst: Annotated[bool, Field(description="whether any model is in burst mode")] = False
    burst_max_tokens: Annotated[MaxTokens, Field(description="longest answer in burst mode, tokens")] = 256
    models: Annotated[
        dict[ModelName, ModelControl], Field(description="public name -> what holds; absent: nothing does")
    ] = {}
    queue: Annotated[QueueLimits, Field(description="the wait where nothing has room")] = QueueLimits()
    thresholds: Annotated[PolicySettings, Field(description="numbers of the policies")] = PolicySettings()
    predictor_version: Annotated[
        str, Field(max_length=64, description="the model in service, as the sidecar last saw it; empty: none")
    ] = ""
    backends: Annotated[
        list[Backend],
        Field(max_length=names.MAX_BACKENDS, description="the fleet, as far as its names resolve"),
    ] = []
