"""Arrival rates of one model: a fast and a slow moving rate of what the gateways' leases count, and how many
came within the last second."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping
from typing import Final

from tokenweir.contract.records import Lease

FAST_MS: Final = 500
SLOW_MS: Final = 60_000
SLOW_IN_BURST_MS: Final = 300_000
"""In a burst the usual rate follows more slowly, so that the burst does not become usual within a minute;
one that lasts does, in the end."""
WINDOW_MS: Final = 1000
ARMED_MS: Final = 10_000
"""What was seen for less than this has no usual rate."""
MOST_COUNTED: Final = 10_000_000
LEAST: Final = 0.001
"""Requests per second below which nothing comes: a moving rate only ever halves."""


def _rate(value: float) -> float:
    return value if value >= LEAST else 0.0


class Arrivals:
    """The rates of one model, requests per second."""

    def __init__(self) -> None:
        self._fast = 0.0
        self._slow = 0.0
        self._weight = 0.0
        """Share of the slow average that stands on observations: it is corrected by it."""
        self._window: deque[tuple[float, int]] = deque()
        self._at: float | None = None
        self._seen_ms = 0.0

    @property
    def fast(self) -> float:
        """The rate of the last half second."""
        return _rate(self._fast)

    @property
    def usual(self) -> float | None:
        """The usual rate; None before there was time to see one."""
        return _rate(self._slow / self._weight) if self._seen_ms >= ARMED_MS else None

    def last_second(self) -> int:
        """Requests within the last second."""
        return sum(count for _, count in self._window)

    def observe(self, count: int, now: float, burst: bool = False) -> None:
        """`count` requests came since the last call."""
        if self._at is None:
            self._at = now
            return
        elapsed = now - self._at
        if elapsed <= 0:
            return
        self._at = now
        self._seen_ms += elapsed
        rate = 1000 * count / elapsed
        kept = math.exp(-elapsed / FAST_MS)
        self._fast = kept * self._fast + (1 - kept) * rate
        kept = math.exp(-elapsed / (SLOW_IN_BURST_MS if burst else SLOW_MS))
        self._slow = kept * self._slow + (1 - kept) * rate
        self._weight = kept * self._weight + (1 - kept)
        self._window.append((now, count))
        while self._window and now - self._window[0][0] >= WINDOW_MS:
            self._window.popleft()


class ArrivalCounts:
    """Turns the counters of the leases into numbers of new requests per model."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, Mapping[str, int]]] = {}

    def new(self, leases: Mapping[str, Lease]) -> dict[str, int]:
        """Requests per model since the last call. A gateway seen for the first time, and a model that counts
        anew from a lower number (the gateway was restarted), begin at what they say now."""
        counts: dict[str, int] = {}
        for gateway, lease in leases.items():
            before = self._seen.get(gateway)
            for model, total in lease.arrivals.items():
                counts.setdefault(model, 0)
                if before is None or lease.sequence <= before[0]:
                    continue
                grown = total - before[1].get(model, 0)
                if 0 < grown <= MOST_COUNTED:
                    counts[model] += grown
        self._seen = {gateway: (lease.sequence, lease.arrivals) for gateway, lease in leases.items()}
        return counts
