"""Requests that an engine itself keeps waiting, or memory that is full by its own telling: then it takes no
more than it runs, whatever is predicted of what it has.

Two readings in a row must say so: prompts that are about to be computed wait for a moment too. For the same
reason requests that wait beside free memory count only where the batch has not changed meanwhile: it has all
the sequences that the engine takes at once.
"""

from __future__ import annotations

from typing import Final

from sidecar.control.foreign import BELIEVED_MOST_MS, BELIEVED_MS
from sidecar.telemetry.readings import EngineReading

TIGHT_KV: Final = 0.7
"""From here on it may be memory that requests wait for: one that was preempted needs all of its at once."""

FULL_KV: Final = 0.97
"""An engine that preempts lets no further request in from here on."""

PREEMPTING: Final = frozenset({"vllm", "sglang"})
"""Engines whose KV use does not count what they only keep of ended requests."""


class Backlog:
    """What the last two readings of one engine say."""

    def __init__(self) -> None:
        self._before: EngineReading | None = None
        self._last: EngineReading | None = None

    def observe(self, reading: EngineReading) -> None:
        """Take a reading."""
        self._before, self._last = self._last, reading

    def now(self, now: float) -> tuple[int | None, str | None]:
        """The most sequences that it takes at present, None: it does not say; and why."""
        before, last = self._before, self._last
        if before is None or last is None or before.running is None or last.running is None:
            return None, None
        if now - last.at > max(BELIEVED_MS, min(2 * (last.at - before.at), BELIEVED_MOST_MS)):
            return None, None
        most = max(1, int(max(before.running, last.running)))
        if before.waiting and last.waiting and (_is_tight(last) or before.running == last.running):
            return most, f"full: the engine keeps {last.waiting:g} requests waiting beside {last.running:g}"
        if _is_full(before) and _is_full(last):
            return most, f"full: {last.kv_use:.0%} of the engine's KV memory is in use"
        return None, None


def _is_tight(reading: EngineReading) -> bool:
    return reading.kv_use is None or reading.kv_use >= TIGHT_KV


def _is_full(reading: EngineReading) -> bool:
    return reading.source in PREEMPTING and (reading.kv_use or 0) >= FULL_KV
