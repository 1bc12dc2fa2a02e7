"""The trained model of output lengths, under its version, and the key that names the one in service."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tokenweir.contract.record import Document
from tokenweir.contract.values import Count

Version = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class PredictorCurrent(Document):
    """`tw:predictor:current`: the model that predicts output lengths."""

    version: Annotated[Version, Field(description="of the model in service")]
    time_ms: Annotated[Count, Field(description="wall time when it was put into service")]
    previous: Annotated[
        list[Version], Field(max_length=16, description="those in service before, the latest first")
    ] = []


class PredictorModel(Document):
    """`tw:predictor:model:<version>`: an exported model (`model/export.py`)."""

    version: Annotated[Version, Field(description="its own")]
    checksum: Annotated[
        str, Field(pattern=r"^[0-9a-f]{16}$", description="XXH64 of the payload's bytes, in hex digits")
    ]
    payload: Annotated[
        str, Field(max_length=8_388_608, description="JSON text: arrays in base64, vectors to reproduce")
    ]
