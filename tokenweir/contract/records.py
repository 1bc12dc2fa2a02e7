"""The documents in Redis, as pydantic models.

`lua/tokenweir/contract.lua` and `docs/contract.md` are generated from this file, so no field is named twice.
Times that end in `_ms` are milliseconds; token counts are whole tokens. A value that is not known is null,
never an invented number.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from tokenweir.contract import names

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=0, le=10**15)]
Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
ModelName = Annotated[str, Field(min_length=1, max_length=256)]
PathPrefix = Annotated[
    str, Field(min_length=5, max_length=256, pattern=r"^/v1/[A-Za-z0-9_.~-][A-Za-z0-9_.~/-]*$")
]


class Record(BaseModel):
    """A record of the contract: unknown members are ignored, so an older reader survives a newer writer."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Document(Record):
    """A record that stands under a key of its own and carries the schema number."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    schema_: Annotated[int, Field(alias="schema")] = names.SCHEMA

    def dump(self) -> str:
        """The JSON text that goes into Redis."""
        return self.model_dump_json(by_alias=True)


class Policy(StrEnum):
    """The policies that a gateway can serve by; each is a file in `lua/tokenweir/core/policy/`."""

    ROUND_ROBIN = "round_robin"
    LEAST_CONN = "least_conn"
    LEAST_INFLIGHT = "least_inflight"
    HYBRID = "hybrid"
    PREDICTIVE = "predictive"


class Priority(StrEnum):
    """Priority classes, highest first."""

    HIGH = "high"
    NORMAL = "normal"
    LOW = "low"


class Role(StrEnum):
    """What a backend is for."""

    ACTIVE = "active"
    STANDBY = "standby"
    FALLBACK = "fallback"


class State(StrEnum):
    """Whether a backend may get requests; only `ready` may."""

    READY = "ready"
    STARTING = "starting"
    DRAINING = "draining"
    DOWN = "down"


class Cost(Record):
    """What work costs on a backend, in ms (DESIGN 4).

    A step with n sequences and kv tokens held takes `base + per_sequence * n + per_kv_token * kv`.
    """

    prefill: Annotated[float, Field(gt=0, le=1e4, description="ms per prompt token")]
    base: Annotated[float, Field(gt=0, le=1e5, description="ms per decode step")]
    per_sequence: Annotated[float, Field(ge=0, le=1e4, description="ms per sequence in the step")]
    per_kv_token: Annotated[float, Field(ge=0, le=1e2, description="ms per KV token held")]


class Foreign(Record):
    """Load on a backend that did not come through a gateway."""

    requests: Positive = 0
    tokens: Positive = 0


class Backend(Record):
    """One inference server as the leader sidecar sees it."""

    id: Id
    host: Annotated[str, Field(description="IP address, resolved by the sidecar")]
    port: Annotated[int, Field(ge=1, le=65535)]
    tls: bool = False
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
    role: Role = Role.ACTIVE
    state: State
    admit: Annotated[Share, Field(description="share of its fair share that it may get (ramp)")] = 1
    weight: Annotated[float, Field(gt=0, le=1e6)] = 1
    precision: Annotated[str, Field(max_length=16)] = ""
    engine: Annotated[str, Field(max_length=32)] = ""
    memory: Annotated[
        Share | None, Field(description="memory use: KV where the engine tells it, else the card's")
    ] = None
    memory_age_ms: Positive | None = None
    load: Annotated[Positive | None, Field(description="running + waiting requests, as the engine says")] = (
        None
    )
    load_age_ms: Positive | None = None
    capacity: Annotated[int | None, Field(gt=0, le=10**12, description="KV tokens")] = None
    context: Annotated[int | None, Field(gt=0, le=10**9, description="longest prompt + output, tokens")] = (
        None
    )
    concurrency: Annotated[
        int | None, Field(gt=0, le=10**6, description="most requests at once where no capacity is known")
    ] = None
    cost: Cost
    foreign: Foreign = Foreign()
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
    reasons: Annotated[
        list[str], Field(max_length=16, description="why it has this state and these scores")
    ] = []


class QueueLimits(Record):
    """Bounds of the wait when nothing is feasible."""

    max_waiting: Annotated[int, Field(ge=0, le=1_000_000)] = 1000
    max_wait_ms: Annotated[int, Field(ge=0, le=3_600_000)] = 30_000
    max_bytes: Annotated[
        int, Field(ge=0, le=10**15, description="of all requests that wait in one gateway")
    ] = 256 * 1024**2


class PolicySettings(Record):
    """Numbers of the policies (DESIGN 4 and 5)."""

    kv_cap: Annotated[
        float, Field(gt=0, le=1, description="held + prompt stays below this share of capacity")
    ] = 0.85
    z: Annotated[float, Field(ge=0, le=10, description="standard deviations kept free")] = 1.3
    crowding: Annotated[
        float, Field(ge=0, le=1, description="growth of the predicted time with each request that is there")
    ] = 0.02
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


class Snapshot(Document):
    """`tw:snapshot`: what the leader sidecar decided this tick."""

    fence: Annotated[int, Field(ge=0, description="the leader's fencing number; it never falls")]
    sequence: Annotated[int, Field(ge=0)]
    time_ms: Annotated[int, Field(ge=0, description="wall time of publication")]
    policy: Policy = Policy.PREDICTIVE
    shadow: Annotated[Policy | None, Field(description="policy whose choice is only logged")] = None
    level: Annotated[int, Field(ge=0, le=4)] = 0
    burst: bool = False
    queue: QueueLimits = QueueLimits()
    thresholds: PolicySettings = PolicySettings()
    predictor_version: Annotated[str, Field(max_length=64)] = ""
    backends: Annotated[list[Backend], Field(max_length=names.MAX_BACKENDS)] = []


class ModelSettings(Record):
    """One public model."""

    name: ModelName
    aliases: list[ModelName] = []
    output_prior: Annotated[
        Positive | None, Field(description="median output before anything is measured")
    ] = None


class KeySettings(Record):
    """One API key; only its SHA-256 is known."""

    id: Id
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
    models: Annotated[list[ModelName] | None, Field(description="allowed models; null: all")] = None
    max_priority: Priority = Priority.HIGH
    requests_per_minute: Annotated[int | None, Field(ge=1)] = None
    tokens_per_minute: Annotated[int | None, Field(ge=1)] = None
    deadline_ms: Annotated[int | None, Field(ge=1)] = None


class HealthSettings(Record):
    """Passive health."""

    failures: Annotated[int, Field(ge=1, le=100, description="failures in a row that eject")] = 3
    eject_ms: Annotated[int, Field(ge=100, le=600_000, description="first ejection; doubles each time")] = (
        5000
    )
    eject_max_ms: Annotated[int, Field(ge=100, le=3_600_000, description="longest ejection")] = 60_000
    probe_ms: Annotated[int, Field(ge=100, le=600_000, description="lease of a half-open probe")] = 30_000
    error_rate: Annotated[float, Field(gt=0, le=1, description="moving share of failures that ejects")] = 0.5
    hang_ms: Annotated[
        int,
        Field(ge=500, le=600_000, description="no byte on any flowing stream for this long, at least: hung"),
    ] = 3000
    hang_gaps: Annotated[
        float, Field(ge=2, le=1000, description="and for this many of the backend's usual gaps between bytes")
    ] = 20


class Limits(Record):
    """Limits of requests."""

    deadline_ms: Annotated[int | None, Field(ge=1, description="whole request; null: none")] = None
    idle_ms: Annotated[int, Field(ge=1000, description="longest gap between two bytes of an answer")] = (
        600_000
    )
    tries: Annotated[int, Field(ge=1, le=10)] = 3
    quarantine_ms: Annotated[
        int, Field(ge=0, description="how long a prompt that met two crashes is refused")
    ] = 600_000


class HeaderSettings(Record):
    """Which response headers are sent."""

    backend: Annotated[bool, Field(description="X-Tokenweir-Backend")] = True
    predicted_tokens: Annotated[bool, Field(description="X-Tokenweir-Predicted-Tokens")] = True
    wait_ms: Annotated[bool, Field(description="X-Tokenweir-Wait-Ms")] = True
    degraded: Annotated[bool, Field(description="X-Tokenweir-Degraded")] = True


class Settings(Document):
    """`tw:settings`: what does not change by the tick."""

    version: Annotated[int, Field(ge=0, description="grows with every change")] = 0
    models: list[ModelSettings] = []
    default_model: Annotated[ModelName | None, Field(description="for requests without a model")] = None
    paths: Annotated[
        dict[PathPrefix, ModelName],
        Field(
            max_length=256,
            description="path prefix -> model, for requests that name none; the longest prefix wins, and "
            "before `default_model`",
        ),
    ] = {}
    keys: Annotated[list[KeySettings], Field(max_length=100_000)] = []
    require_key: bool = False
    limits: Limits = Limits()
    health: HealthSettings = HealthSettings()
    headers: HeaderSettings = HeaderSettings()


class ModelStats(Record):
    """Running figures of one model's completions."""

    count: Count = 0
    mean: Positive
    median: Positive
    spread: Annotated[float, Field(ge=0, le=10, description="standard deviation of ln(1 + output tokens)")]
    tokens_per_byte: Annotated[
        float, Field(gt=0, le=10, description="prompt tokens per byte of prompt text")
    ] = 0.25
    tokens_per_event: Annotated[
        float, Field(gt=0, le=1000, description="output tokens per streamed event")
    ] = 1


class Stats(Document):
    """`tw:stats`: running medians and spreads of the outputs."""

    version: Annotated[int, Field(ge=0)] = 0
    models: dict[ModelName, ModelStats] = {}


class BackendLoad(Record):
    """What one gateway has in flight on one backend; the members of `tw_load` in `core/load.lua`."""

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


class Outcome(StrEnum):
    """How a request ended."""

    OK = "ok"
    CLIENT_GONE = "client_gone"
    UPSTREAM_ERROR = "upstream_error"
    UPSTREAM_BROKE = "upstream_broke"
    REFUSED = "refused"
    TIMEOUT = "timeout"


class Completion(Record):
    """One request that reached a backend; it carries numbers, never text."""

    id: Annotated[str, Field(max_length=64)]
    gateway: Id
    time_ms: Annotated[Count, Field(description="wall time of the end")]
    model: ModelName
    backend: Id
    kind: Literal["chat", "completions", "responses", "embeddings", "other"]
    key: Annotated[str, Field(max_length=64)] = ""
    priority: Priority = Priority.NORMAL
    stream: bool = False
    n: Annotated[int, Field(ge=1, le=1024)] = 1
    prompt_bytes: Count = 0
    prompt_estimate: Positive = 0
    max_tokens: Count | None = None
    mean: Annotated[Positive, Field(description="predicted mean output")] = 0
    median: Positive = 0
    q90: Positive = 0
    predictor: Annotated[str, Field(max_length=64)] = "running"
    output: Annotated[Positive | None, Field(description="output tokens; null where nothing tells")] = None
    output_source: Literal["usage", "events", "none"] = "none"
    events: Annotated[Count, Field(description="streamed events with output")] = 0
    prompt: Annotated[Count | None, Field(description="usage.prompt_tokens")] = None
    cached: Annotated[Count | None, Field(description="usage.prompt_tokens_details.cached_tokens")] = None
    finish: Annotated[str, Field(max_length=32)] = ""
    wait_ms: Positive = 0
    ttft_ms: Positive | None = None
    total_ms: Positive = 0
    status: Annotated[int, Field(ge=0, le=999)] = 0
    outcome: Outcome
    policy: Annotated[str, Field(max_length=32)] = ""
    shadow: Annotated[
        str, Field(max_length=64, description="backend that the shadow policy would have chosen")
    ] = ""


DOCUMENTS: dict[str, type[Document]] = {
    "snapshot": Snapshot,
    "settings": Settings,
    "stats": Stats,
    "lease": Lease,
}
