"""Where a figure will be in a minute or two, from its last minute: a straight line, not bent downwards."""

from __future__ import annotations

from collections import deque
from typing import Final

WINDOW_MS: Final = 60_000
SPACING_MS: Final = 1000
REACH: Final = 2.0
"""A line is not prolonged by more than so many times what it was seen for."""


class Trend:
    """The last minute of one figure."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def observe(self, value: float, now: float) -> None:
        """The figure at monotonic `now`; looks closer than a second count once."""
        if self._points and now - self._points[-1][0] < SPACING_MS:
            return
        self._points.append((now, value))
        while now - self._points[0][0] > WINDOW_MS:
            self._points.popleft()

    def forecast(self, value: float, now: float, horizon_ms: float) -> float:
        """The figure in `horizon_ms`, given its value now. A falling one is taken to stay: spares are not
        sent away because of a guess."""
        points = self._points
        if len(points) < 5:
            return value
        span = points[-1][0] - points[0][0]
        middle = sum(at for at, _ in points) / len(points)
        mean = sum(one for _, one in points) / len(points)
        spread = sum((at - middle) ** 2 for at, _ in points)
        slope = sum((at - middle) * (one - mean) for at, one in points) / spread if spread > 0 else 0.0
        return value + max(0.0, slope) * min(horizon_ms, REACH * span)
