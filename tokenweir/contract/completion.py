"""`tw:completions`: one record of each request that reached a backend."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tokenweir.contract.enums import Outcome, Priority
from tokenweir.contract.record import Record
from tokenweir.contract.values import Count, Hashed, Id, ModelName, Positive


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
    error: Annotated[
        Literal["", "out_of_memory", "kv_full"],
        Field(description="what the engine's error text says of its memory"),
    ] = ""
    degraded: Annotated[
        str, Field(max_length=64, description="as in X-Tokenweir-Degraded; empty: served as asked")
    ] = ""
    policy: Annotated[str, Field(max_length=32)] = ""
    features: Annotated[Count | None, Field(description="version of the features; null: not recorded")] = None
    vector: Annotated[
        str, Field(max_length=4096, description="the features that it was predicted from (base64 of float32)")
    ] = ""
    words: Annotated[
        str,
        Field(max_length=16_384, description="the hashed words of its last message (base64 of uint16)"),
    ] = ""
    key_number: Annotated[
        Hashed, Field(description="its key as the gateways' histories know it (a hash of 52 bits); 0: none")
    ] = 0
    system_number: Annotated[Hashed, Field(description="the same of its system prompt")] = 0
    learned: Annotated[
        float | None,
        Field(
            ge=0,
            le=20,
            description="ln(1 + tokens) of one output; of one that was cut, what it would have been",
        ),
    ] = None
    shadow: Annotated[
        str, Field(max_length=64, description="backend that the shadow policy would have chosen")
    ] = ""
