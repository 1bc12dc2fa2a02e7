"""What the telemetry itself costs: CPU, requests, bytes."""

from __future__ import annotations

import time
from typing import Final

from sidecar.clock import monotonic_ms
from sidecar.telemetry.http import Traffic

WINDOW_MS: Final = 10_000


class OwnCost:
    """Figures of the last whole window. They are renewed when they are asked for, so that any number of
    askers see the same; nobody asking costs nothing."""

    def __init__(self, traffic: Traffic, interval_ms: int) -> None:
        self._traffic = traffic
        self._interval_ms = interval_ms
        self._at = monotonic_ms()
        self._cpu = time.process_time()
        self._requests = self._bytes = 0
        self._shares = (0.0, 0.0, 0.0)

    @property
    def cpu_share(self) -> float:
        """Of one core, all threads of the process."""
        return self._now()[0]

    @property
    def looks_per_second(self) -> float:
        """Requests to engines and exporters."""
        return self._now()[1]

    @property
    def bytes_per_tick(self) -> float:
        """Bytes of their answers in one telemetry interval."""
        return self._now()[2] * self._interval_ms / 1000

    def _now(self) -> tuple[float, float, float]:
        now, cpu, traffic = monotonic_ms(), time.process_time(), self._traffic
        seconds = (now - self._at) / 1000
        first = self._shares == (0.0, 0.0, 0.0)
        if seconds * 1000 >= WINDOW_MS or (first and seconds >= 1):
            self._shares = (
                (cpu - self._cpu) / seconds,
                (traffic.requests - self._requests) / seconds,
                (traffic.bytes - self._bytes) / seconds,
            )
            self._at, self._cpu = now, cpu
            self._requests, self._bytes = traffic.requests, traffic.bytes
        return self._shares
