"""The two clocks, in ms: one that never jumps for ages, the wall's for what leaves the process."""

from __future__ import annotations

import time


def monotonic_ms() -> float:
    """CLOCK_MONOTONIC in ms."""
    return time.monotonic_ns() / 1e6


def wall_ms() -> int:
    """Unix time in ms."""
    return time.time_ns() // 1_000_000
