"""The safety margin of the policy (`thresholds.z`): wider after any out-of-memory, back slowly."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

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

    def out_of_memory(self, at: float) -> None:
        """A request fell to want of memory at monotonic `at`; what is told late, of an event before the last,
        was counted with it."""
        if at - self._event_at < TOGETHER_MS:
            return
        self._event_at = at
        self._added = min(self._now(at) + STEP, MOST_ADDED)
        self._at = at

    def z(self, configured: float, now: float) -> float:
        """The margin to publish, in standard deviations."""
        added = self._now(now)
        return round(min(configured + added, 10.0), 2) if added >= 0.01 else configured

    def dump(self, now: float) -> dict[str, Any]:
        """What another sidecar needs to go on."""
        return {"added": round(self._now(now), 4), "age_ms": _whole(now - self._event_at)}

    def restore(self, state: Mapping[str, Any], then: float) -> None:
        """Take over a dump that was made at monotonic `then`. Raises KeyError, TypeError, ValueError on a
        strange one."""
        age_ms = state["age_ms"]
        self._added, self._at = min(max(float(state["added"]), 0.0), MOST_ADDED), then
        self._event_at = float("-inf") if age_ms is None else then - float(age_ms)

    def _now(self, now: float) -> float:
        return self._added * math.exp(-max(now - self._at, 0.0) / TAU_MS)


def _whole(age_ms: float) -> int | None:
    return round(age_ms) if math.isfinite(age_ms) else None
