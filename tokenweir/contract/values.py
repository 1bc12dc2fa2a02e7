"""Kinds of values that the records share."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

Share = Annotated[float, Field(ge=0, le=1)]

Positive = Annotated[float, Field(ge=0, le=1e15, allow_inf_nan=False)]

Count = Annotated[int, Field(ge=0, le=10**15)]
Hashed = Annotated[int, Field(ge=0, le=2**53)]
"""A hash that is exact in a double."""

Id = Annotated[str, Field(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]

ModelName = Annotated[str, Field(min_length=1, max_length=256)]

PathPrefix = Annotated[
    str, Field(min_length=5, max_length=256, pattern=r"^/v1/[A-Za-z0-9_.~-][A-Za-z0-9_.~/-]*$")
]
