"""Sizes and times as people write them: `64MiB`, `30s`, `10m`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

_BYTES = {"": 1, "b": 1, "k": 1024, "kib": 1024, "kb": 1000, "m": 1024**2, "mib": 1024**2, "mb": 1000**2}
_BYTES |= {"g": 1024**3, "gib": 1024**3, "gb": 1000**3}
_MS = {"ms": 1, "s": 1000, "": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}
_QUANTITY = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*$")


MOST_BYTES, MOST_MS = 10**15, 10**12
"""Bounds of any size and any time: a petabyte, three decades. More is a slip, and more than nginx counts."""


def _parse(value: Any, units: dict[str, int], example: str, most: int) -> Any:
    if isinstance(value, bool):
        raise ValueError(f"a quantity like {example} is wanted")
    text = str(value) if isinstance(value, int | float) else value
    if not isinstance(text, str):
        return value
    match = _QUANTITY.match(text)
    if not match or match[2].lower() not in units:
        raise ValueError(f"a quantity like {example} is wanted")
    found = float(match[1]) * units[match[2].lower()]
    if found > most:
        raise ValueError(f"it is too large; a quantity like {example} is wanted")
    return round(found)


def parse_bytes(value: Any) -> Any:
    """`4MiB` -> 4194304; a bare number is bytes."""
    return _parse(value, _BYTES, "`4MiB`", MOST_BYTES)


def parse_ms(value: Any) -> Any:
    """`30s` -> 30000; a bare number is seconds."""
    return _parse(value, _MS, "`30s` or `10m`", MOST_MS)


KIND = "x-quantity"
"""Member of a key's JSON Schema that says how its number is written: `time` or `size`."""
_UNITS = {
    "time": (("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1)),
    "size": (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024), ("", 1)),
}


def written(kind: str, value: int) -> str:
    """A quantity as a person writes it: 4MiB, 10m, 500ms."""
    unit, size = next(
        ((unit, size) for unit, size in _UNITS[kind] if value and value % size == 0), _UNITS[kind][-1]
    )
    return f"{value // size}{unit}"


class Quantity:
    """Marks a whole number that is written as a quantity of a kind, in its JSON Schema too."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __get_pydantic_json_schema__(
        self, core: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {**handler(core), KIND: self.kind}


InBytes = BeforeValidator(parse_bytes)
InMs = BeforeValidator(parse_ms)
"""For a whole number whose bounds the contract has: `Annotated[values.Wait, InMs, TIME]`."""
SIZE, TIME = Quantity("size"), Quantity("time")
ByteSize = Annotated[int, InBytes, SIZE, Field(ge=1)]
Duration = Annotated[int, InMs, TIME, Field(ge=0)]
"""Milliseconds."""
