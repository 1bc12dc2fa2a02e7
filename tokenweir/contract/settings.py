"""`tw:settings`: what does not change by the tick."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweir.contract.enums import Priority, TransferAdapter
from tokenweir.contract.record import Document, Record
from tokenweir.contract.values import (
    BodyMs,
    DeadlineMs,
    Id,
    IdleMs,
    KeyWeight,
    LatencyMs,
    ModelName,
    MovedMs,
    PathPrefix,
    PerMinute,
    Positive,
    QuarantineMs,
    RememberedMs,
    Sha256,
    Share,
    TransferMs,
    Tries,
)


class ModelSettings(Record):
    """One public model."""

    name: Annotated[ModelName, Field(description="what clients send as `model`")]
    aliases: Annotated[list[ModelName], Field(description="other names that clients may send for it")] = []
    output_prior: Annotated[
        Positive | None, Field(description="median output tokens before anything is measured")
    ] = None


class KeySettings(Record):
    """One API key; only its SHA-256 is known."""

    id: Annotated[Id, Field(description="its name in logs and metrics")]
    sha256: Annotated[Sha256, Field(description="of the key, in hex")]
    models: Annotated[list[ModelName] | None, Field(description="allowed models; null: all")] = None
    max_priority: Annotated[Priority, Field(description="highest `X-Priority` that it may ask for")] = (
        Priority.HIGH
    )
    requests_per_minute: Annotated[PerMinute | None, Field(description="null: no limit")] = None
    tokens_per_minute: Annotated[
        PerMinute | None, Field(description="prompt and output together; null: no limit")
    ] = None
    deadline_ms: Annotated[
        DeadlineMs | None, Field(description="whole request, where `limits.deadline_ms` is not shorter")
    ] = None
    burst_exempt: Annotated[bool, Field(description="its requests are left whole in burst mode")] = False
    weight: Annotated[KeyWeight, Field(description="its share against other keys' while requests wait")] = 1


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

    deadline_ms: Annotated[DeadlineMs | None, Field(description="whole request; null: none")] = None
    body_ms: Annotated[
        BodyMs, Field(description="time within which a body brings its rest, or 1 KiB for each second")
    ] = 60_000
    idle_ms: Annotated[IdleMs, Field(description="longest gap between two bytes of an answer")] = 600_000
    tries: Annotated[Tries, Field(description="backends that one request may be offered to")] = 3
    quarantine_ms: Annotated[
        QuarantineMs, Field(description="how long a prompt that met two crashes is refused")
    ] = 600_000


class HeaderSettings(Record):
    """Which response headers are sent."""

    backend: Annotated[bool, Field(description="X-Tokenweir-Backend")] = True
    predicted_tokens: Annotated[bool, Field(description="X-Tokenweir-Predicted-Tokens")] = True
    wait_ms: Annotated[bool, Field(description="X-Tokenweir-Wait-Ms")] = True
    degraded: Annotated[bool, Field(description="X-Tokenweir-Degraded")] = True


class TransferSettings(Record):
    """Whether the KV cache of a session that moves is moved with it, and what that is expected to take."""

    adapter: Annotated[TransferAdapter, Field(description="by what; none: not at all")] = TransferAdapter.NONE
    bandwidth: Annotated[float, Field(gt=0, le=1e15, description="bytes a second, before any is seen")] = (
        1024**3
    )
    latency_ms: Annotated[LatencyMs, Field(description="of a transfer, whatever its size")] = 20
    limit_ms: Annotated[
        TransferMs, Field(description="longest wait of a request; never longer than its prefill takes")
    ] = 5000


class SessionSettings(Record):
    """What makes requests one session, and how long a session is remembered."""

    by_user: Annotated[
        bool, Field(description="whether the member `user` names a session (often it is constant)")
    ] = False
    memory_ms: Annotated[RememberedMs, Field(description="how long after its last request one is known")] = (
        3_600_000
    )
    affinity: Annotated[
        bool, Field(description="whether sessions stay at their places; false: every request by itself")
    ] = True
    prefixes: Annotated[
        bool, Field(description="whether equal beginnings of prompts count as cached where one was served")
    ] = True
    move_ms: Annotated[MovedMs, Field(description="how long a move lasts beyond its last use")] = 600_000
    transfer: Annotated[TransferSettings, Field(description="of caches of sessions that move")] = (
        TransferSettings()
    )


class PredictorSettings(Record):
    """How output lengths are predicted, and what is recorded to train from."""

    enabled: Annotated[
        bool, Field(description="predict by the trained model; false: by running figures only")
    ] = True
    record: Annotated[bool, Field(description="let completion records carry features")] = True
    sample: Annotated[Share, Field(description="share of the requests whose features are recorded")] = 0.25
    words: Annotated[
        bool,
        Field(
            description="record hashed words of the last message too; they are pseudonymous, not anonymous"
        ),
    ] = True
    small_model: Annotated[
        bool, Field(description="ask the small model of the host too, where there is time")
    ] = False


class Settings(Document):
    """`tw:settings`: what does not change by the tick."""

    version: Annotated[int, Field(ge=0, description="grows with every change")] = 0
    models: Annotated[
        list[ModelSettings], Field(description="what is set of models; those that backends list need nothing")
    ] = []
    default_model: Annotated[ModelName | None, Field(description="for requests without a model")] = None
    paths: Annotated[
        dict[PathPrefix, ModelName],
        Field(
            max_length=256,
            description="path prefix -> model, for requests that name none; the longest prefix wins, and "
            "before `default_model`",
        ),
    ] = {}
    keys: Annotated[list[KeySettings], Field(max_length=100_000, description="API keys of clients")] = []
    require_key: Annotated[bool, Field(description="whether a request without a known key is refused")] = (
        False
    )
    limits: Annotated[Limits, Field(description="of single requests")] = Limits()
    health: Annotated[HealthSettings, Field(description="when gateways take a backend out")] = (
        HealthSettings()
    )
    headers: Annotated[HeaderSettings, Field(description="which response headers are sent")] = (
        HeaderSettings()
    )
    sessions: Annotated[SessionSettings, Field(description="what keeps a session where its cache is")] = (
        SessionSettings()
    )
    predictor: Annotated[PredictorSettings, Field(description="prediction of output lengths")] = (
        PredictorSettings()
    )
