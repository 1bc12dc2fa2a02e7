"""`tw:stats`: running figures of the outputs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tokenweir.contract.record import Document, Record
from tokenweir.contract.values import Count, ModelName, Positive


class ModelStats(Record):
    """Running figures of one model's completions."""

    count: Annotated[Count, Field(description="completions that it is made of")] = 0
    mean: Annotated[Positive, Field(description="of the output, tokens")]
    median: Annotated[Positive, Field(description="of the output, tokens")]
    spread: Annotated[float, Field(ge=0, le=10, description="standard deviation of ln(1 + output tokens)")]
    tokens_per_byte: Annotated[
        float, Field(gt=0, le=10, description="prompt tokens per byte of prompt text")
    ] = 0.25
    tokens_per_event: Annotated[
        float, Field(gt=0, le=1000, description="output tokens per streamed event")
    ] = 1


class Stats(Document):
    """`tw:stats`: running medians and spreads of the outputs."""

    version: Annotated[int, Field(ge=0, description="grows with every publication")] = 0
    models: Annotated[dict[ModelName, ModelStats], Field(description="public name -> its figures")] = {}


class History(Record):
    """What came out for one key or one system prompt of a model."""

    of: Annotated[
        Literal["key", "system"], Field(description="whether `number` is of an API key or a system prompt")
    ]
    model: Annotated[ModelName, Field(description="public name")]
    number: Annotated[int, Field(ge=1, lt=2**53, description="a hash of the key's id, or of the prompt")]
    count: Annotated[int, Field(ge=1, description="outputs that it is made of")]
    mean: Annotated[float, Field(ge=0, le=20, description="of ln(1 + output tokens)")]
    variance: Annotated[float, Field(ge=0, le=400, description="of the same")]


class Histories(Document):
    """`tw:stats:histories`: running figures of keys and system prompts, those used last."""

    version: Annotated[int, Field(ge=0, description="grows with every publication")] = 0
    rows: Annotated[list[History], Field(max_length=4096, description="those used last")] = []
