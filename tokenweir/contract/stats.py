"""`tw:stats`: running figures of the outputs."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from tokenweir.contract.record import Document, Record
from tokenweir.contract.values import Count, ModelName, Positive


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


class History(Record):
    """What came out for one key or one system prompt of a model."""

    of: Literal["key", "system"]
    model: ModelName
    number: Annotated[int, Field(ge=1, lt=2**53, description="a hash of the key's id, or of the prompt")]
    count: Annotated[int, Field(ge=1)]
    mean: Annotated[float, Field(ge=0, le=20, description="of ln(1 + output tokens)")]
    variance: Annotated[float, Field(ge=0, le=400)]


class Histories(Document):
    """`tw:stats:histories`: running figures of keys and system prompts, those used last."""

    version: Annotated[int, Field(ge=0)] = 0
    rows: Annotated[list[History], Field(max_length=4096)] = []
