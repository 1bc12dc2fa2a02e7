"""What an engine tells and what cannot be: figures out of any range are left out, as if not told.

An engine (or whatever answers at its port) may tell anything. Nothing is decided by figures that cannot be,
and no other backend suffers from them.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, Final

from sidecar.telemetry.readings import EngineReading, Total

MOST_REQUESTS: Final = 10**6
MOST_CAPACITY: Final = 10**12
MOST: Final = 1e18
"""Of a counter, and of the sum of a histogram."""
REQUESTS: Final = frozenset({"running", "waiting", "paused"})
UNCHECKED: Final = frozenset({"at", "source", "movement", "loaded"})
"""Made here, or only compared with what they were before."""
CHECKED: Final = tuple(
    (one.name, MOST_REQUESTS if one.name in REQUESTS else MOST_CAPACITY if one.name == "capacity" else MOST)
    for one in fields(EngineReading)
    if one.name not in UNCHECKED
)


def plausible(reading: EngineReading) -> tuple[EngineReading, str]:
    """The reading without what cannot be, and that in words; empty where all can."""
    left_out: dict[str, Any] = {}
    for name, most in CHECKED:
        value = getattr(reading, name)
        if value is None:
            continue
        can_be = (
            0 <= value.sum <= most and 0 <= value.count <= most
            if isinstance(value, Total)
            else 0 <= value <= most
        )
        if not can_be:
            left_out[name] = value
    if not left_out:
        return reading, ""
    nothing: dict[str, Any] = dict.fromkeys(left_out)
    words = ", ".join(f"{name} {_text(value)}" for name, value in left_out.items())
    return replace(reading, **nothing), f"figures that cannot be are left out: {words}"


def _text(value: Any) -> str:
    return f"{value.sum:g} in {value.count:g}" if isinstance(value, Total) else f"{value:g}"
