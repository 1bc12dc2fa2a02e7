"""Sizes and times as people write them: `64MiB`, `30s`, `10m`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

_BYTES = {"": 1, "b": 1, "k": 1024, "kib": 1024, "kb": 1000, "m": 1024**2, "mib": 1024**2, "mb": 1000**2}
_BYTES |= {"g": 1024**3, "gib": 1024**3, "gb": 1000**3}
_MS = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_QUANTITY = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*$")


def _parse(value: Any, units: dict[str, int], example: str) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"a quantity like {example} is wanted")
    text = str(value) if isinstance(value, int | float) else value
    if not isinstance(text, str):
        return value
    match = _QUANTITY.match(text)
    if not match or match[2].lower() not in units:
        raise ValueError(f"a quantity like {example} is wanted")
    return round(float(match[1]) * units[match[2].lower()])


def parse_bytes(value: Any) -> Any:
    """`4MiB` -> 4194304; a bare number is bytes."""
    return _parse(value, _BYTES, "`4MiB`")


def parse_ms(value: Any) -> Any:
    """`30s` -> 30000; a bare number is seconds."""
    return _parse(value, _MS, "`30s` or `10m`")


ByteSize = Annotated[int, BeforeValidator(parse_bytes), Field(ge=1)]
Duration = Annotated[int, BeforeValidator(parse_ms), Field(ge=0)]
"""Milliseconds."""
