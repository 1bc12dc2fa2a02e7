"""API keys of clients: `keys`."""

from __future__ import annotations

import hashlib
from typing import Annotated, Self

from pydantic import Field, model_validator

from tokenweir.config.file_name import FileName
from tokenweir.config.quantities import Duration
from tokenweir.config.section import Section
from tokenweir.contract.records import Id, ModelName, Priority
from tokenweir.contract.values import KeyWeight, PerMinute, Sha256


class KeyConfig(Section):
    """An API key of a client: given by its SHA-256, or by a file that holds the key."""

    id: Annotated[Id, Field(description="name in logs and metrics")]
    sha256: Annotated[Sha256 | None, Field(description="of the key, as `tokenweir key` prints it")] = None
    key_file: Annotated[
        FileName | None, Field(description="file that holds the key, in place of `sha256`")
    ] = None
    models: Annotated[list[ModelName] | None, Field(description="allowed models; null: all")] = None
    max_priority: Annotated[Priority, Field(description="highest `X-Priority` that it may ask for")] = (
        Priority.HIGH
    )
    requests_per_minute: Annotated[PerMinute | None, Field(description="null: no limit")] = None
    tokens_per_minute: Annotated[
        PerMinute | None, Field(description="prompt and output together; null: no limit")
    ] = None
    deadline: Annotated[
        Duration | None, Field(description="longest whole request; null: `limits.deadline`")
    ] = None
    burst_exempt: Annotated[bool, Field(description="its requests are left whole in burst mode")] = False
    weight: Annotated[KeyWeight, Field(description="its share against other keys' while requests wait")] = 1

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.sha256 is None) == (self.key_file is None):
            raise ValueError("give either `sha256` or `key_file`")
        return self


def hash_key(key: str) -> str:
    """SHA-256 of an API key, in hex: what is kept of it."""
    return hashlib.sha256(key.strip().encode()).hexdigest()
