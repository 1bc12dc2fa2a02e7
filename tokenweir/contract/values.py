"""Kinds of values that the records share."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

Share = Annotated[float, Field(ge=0, le=1)]

Positive = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]

Count = Annotated[int, Field(ge=0, le=10**15)]
Hashed = Annotated[int, Field(ge=0, le=2**53)]
"""A hash that is exact in a double."""

ID_PATTERN: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"
Id = Annotated[str, Field(min_length=1, max_length=64, pattern=ID_PATTERN)]

PATH_PREFIX_PATTERN: Final = r"^/v1/[A-Za-z0-9_.~-][A-Za-z0-9_.~/-]*$"
PLAIN: Final = r"^[^\x00-\x1f\x7f]*$"
"""What may end in a header or a log line; a gateway refuses a snapshot with anything else."""

ModelName = Annotated[str, Field(min_length=1, max_length=256, pattern=PLAIN)]

PathPrefix = Annotated[str, Field(min_length=5, max_length=256, pattern=PATH_PREFIX_PATTERN)]

# Bounds that hold in `tokenweir.yaml` and in what is made of it.

WaitMs = Annotated[int, Field(ge=0, le=3_600_000)]
PassMs = Annotated[int, Field(ge=0, le=60_000)]
RememberedMs = Annotated[int, Field(ge=10_000, le=86_400_000)]
MovedMs = Annotated[int, Field(ge=1000, le=86_400_000)]
IdleMs = Annotated[int, Field(ge=1000)]
BodyMs = Annotated[int, Field(ge=1000)]
DeadlineMs = Annotated[int, Field(ge=1)]
QuarantineMs = Annotated[int, Field(ge=0)]
TransferMs = Annotated[int, Field(ge=1, le=600_000)]
LatencyMs = Annotated[float, Field(ge=0, le=600_000)]
Bytes = Annotated[int, Field(ge=0, le=10**15)]
Waiters = Annotated[int, Field(ge=0, le=1_000_000)]
EarlyHints = Annotated[int, Field(ge=0, le=4)]
Tries = Annotated[int, Field(ge=1, le=10)]
ClassWeight = Annotated[float, Field(gt=0, le=1000)]
ClassFloor = Annotated[float, Field(ge=0, le=0.5)]
KeyWeight = Annotated[float, Field(gt=0, le=1000)]
PerMinute = Annotated[int, Field(ge=1)]
MaxTokens = Annotated[int, Field(ge=1, le=1_000_000)]
SHA256_PATTERN: Final = r"^[0-9a-f]{64}$"
Sha256 = Annotated[str, Field(pattern=SHA256_PATTERN)]
