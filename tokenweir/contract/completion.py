"""`tw:completions`: one record of each request that reached a backend."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tokenweir.contract.enums import Outcome, Priority
from tokenweir.contract.record import Record
from tokenweir.contract.values import Count, Hashed, Id, ModelName, Positive


class Completion(Record):
    """One request that reached a backend; it carries numbers, never text."""

    id: Annotated[str, Field(max_length=64, description="the request's, as in X-Request-Id")]
    gateway: Annotated[Id, Field(description="the `gateway_id` of who served it")]
    time_ms: Annotated[Count, Field(description="wall time of the end")]
    model: Annotated[ModelName, Field(description="public name")]
    backend: Annotated[Id, Field(description="the last one that it was sent to")]
    kind: Annotated[
        Literal["chat", "completions", "responses", "embeddings", "other"],
        Field(description="which of the paths below /v1/"),
    ]
    key: Annotated[str, Field(max_length=64, description="id of its API key; empty: none")] = ""
    priority: Annotated[Priority, Field(description="as it was served")] = Priority.NORMAL
    stream: Annotated[bool, Field(description="whether it asked for a stream")] = False
    n: Annotated[int, Field(ge=1, le=1024, description="choices that it asked for")] = 1
    prompt_bytes: Annotated[Count, Field(description="of the text of its prompt")] = 0
    prompt_estimate: Annotated[Positive, Field(description="prompt tokens, as the gateway reckoned")] = 0
    max_tokens: Annotated[
        Count | None, Field(description="most output tokens of a choice; null: not bounded")
    ] = None
    mean: Annotated[Positive, Field(description="predicted mean output of a choice, tokens")] = 0
    median: Annotated[Positive, Field(description="predicted median of the same")] = 0
    q90: Annotated[Positive, Field(description="predicted 90 % quantile of the same")] = 0
    predictor: Annotated[
        str, Field(max_length=64, description="what predicted it: a model's version, or `running` figures")
    ] = "running"
    output: Annotated[Positive | None, Field(description="output tokens; null where nothing tells")] = None
    output_source: Annotated[
        Literal["usage", "events", "none"],
        Field(description="what told `output`: the engine's usage, or the number of streamed events"),
    ] = "none"
    events: Annotated[Count, Field(description="streamed events with output")] = 0
    prompt: Annotated[Count | None, Field(description="usage.prompt_tokens")] = None
    cached: Annotated[Count | None, Field(description="usage.prompt_tokens_details.cached_tokens")] = None
    finish: Annotated[
        str, Field(max_length=32, description="the engine's finish_reason; empty: not told")
    ] = ""
    wait_ms: Annotated[Positive, Field(description="in the gateway, for room")] = 0
    ttft_ms: Annotated[
        Positive | None,
        Field(description="from arrival to the first content, or byte of a plain answer; null: none"),
    ] = None
    total_ms: Annotated[Positive, Field(description="from arrival to the end")] = 0
    status: Annotated[int, Field(ge=0, le=999, description="as sent to the client")] = 0
    outcome: Annotated[Outcome, Field(description="how it ended")]
    error: Annotated[
        Literal["", "out_of_memory", "kv_full"],
        Field(description="what the engine's error text says of its memory"),
    ] = ""
    degraded: Annotated[
        str, Field(max_length=64, description="as in X-Tokenweir-Degraded; empty: served as asked")
    ] = ""
    policy: Annotated[str, Field(max_length=32, description="the policy that chose the backend")] = ""
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
