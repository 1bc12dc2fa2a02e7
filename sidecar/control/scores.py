"""The article's dynamic weight: `(100 - memory %) x 1.2` for short outputs, `x 0.3` for long ones."""

from __future__ import annotations

from typing import Final

LOW_FACTOR: Final = 1.2
HIGH_FACTOR: Final = 0.3


def scores(memory: float) -> tuple[float, float]:
    """(low, high) of a memory use from 0 to 1."""
    free = 100 - 100 * memory
    return free * LOW_FACTOR, free * HIGH_FACTOR
