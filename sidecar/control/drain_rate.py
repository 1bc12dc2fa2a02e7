"""How fast a model's memory is freed, from the completions: what a refused client is told to wait.

A request that ends frees its prompt and its output. The time until there is room is what must be freed, over
what is freed a second.
"""

from __future__ import annotations

import math
from typing import Final

TAU_MS: Final = 15_000
"""Time constant of the moving rate."""
LEAST_S: Final = 1.0
MOST_S: Final = 60.0
"""Longest that a client is told to wait."""
UNKNOWN_S: Final = 5.0
"""Told before anything was seen to end."""


class DrainRate:
    """Tokens freed per second, as an exponential moving rate of arrivals of freed tokens."""

    def __init__(self) -> None:
        self._rate = 0.0
        self._at: float | None = None
        self._began: float | None = None

    def freed(self, tokens: float, now: float) -> None:
        """A request that held so many tokens ended at monotonic `now`."""
        if self._began is None:
            self._began = now
        self._decay(now)
        self._rate += tokens * 1000 / TAU_MS

    def per_second(self, now: float) -> float:
        """Tokens freed per second now."""
        self._decay(now)
        if self._began is None:
            return 0.0
        # An average over less than its time constant is corrected for what it cannot have seen yet.
        seen = 1 - math.exp(-max(now - self._began, 1000.0) / TAU_MS)
        return self._rate / seen

    def retry_after_ms(self, excess: float, now: float) -> float:
        """ms until `excess` tokens will have been freed."""
        rate = self.per_second(now)
        if rate <= 0:
            return UNKNOWN_S * 1000
        return 1000 * min(max(excess / rate, LEAST_S), MOST_S)

    def _decay(self, now: float) -> None:
        if self._at is not None and now > self._at:
            self._rate *= math.exp(-(now - self._at) / TAU_MS)
        self._at = now if self._at is None else max(self._at, now)
