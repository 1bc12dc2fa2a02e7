"""The article's dynamic weight: `(100 - memory %) x 1.2` for short outputs, `x 0.3` for long ones."""

from __future__ import annotations

from typing import Final

LOW_FACTOR: Final = 1.2
HIGH_FACTOR: Final = 0.3
UNKNOWN_MEMORY: Final = 0.5
"""Use that is assumed where nobody in the fleet tells any: all are then alike, which is all that matters."""


def scores(memory: float) -> tuple[float, float]:
    """(low, high) of a memory use from 0 to 1."""
    free = 100 - 100 * memory
    return free * LOW_FACTOR, free * HIGH_FACTOR


def neutral(known: list[float]) -> float:
    """The use by which a backend is scored that tells none: the fleet's median, so that it is neither chosen
    always nor never."""
    if not known:
        return UNKNOWN_MEMORY
    ordered = sorted(known)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
