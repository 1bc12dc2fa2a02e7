"""The safety margin of the policy (`thresholds.z`): wider after any out-of-memory, back slowly."""

from __future__ import annotations

import math
from typing import Final

STEP: Final = 0.7
"""Standard deviations that one out-of-memory adds."""
MOST_ADDED: Final = 2.8
TAU_MS: Final = 600_000
TOGETHER_MS: Final = 2000
"""Requests that fail together fell to one event."""


class Margin:
    """What is added to the configured margin."""

    def __init__(self) -> None:
        self._added = 0.0
        self._at = 0.0
        self._event_at = float("-inf")

    def out_of_memory(self, now: float) -> None:
        """A request fell to want of memory at monotonic `now`."""
        if now - self._event_at < TOGETHER_MS:
            return
        self._event_at = now
        self._added = min(self._now(now) + STEP, MOST_ADDED)
        self._at = now

    def z(self, configured: float, now: float) -> float:
        """The margin to publish, in standard deviations."""
        added = self._now(now)
        return round(min(configured + added, 10.0), 2) if added >= 0.01 else configured

    def _now(self, now: float) -> float:
        return self._added * math.exp(-max(now - self._at, 0.0) / TAU_MS)
