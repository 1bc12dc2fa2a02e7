"""How long an engine's own counters have stood still while it had work: the sign of a hung engine."""

from __future__ import annotations

from sidecar.telemetry.readings import EngineReading


class Progress:
    """Watches the movement of one engine's counters."""

    def __init__(self) -> None:
        self._movement: tuple[float | None, ...] | None = None
        self._moved_at: float | None = None
        self._working = False

    def observe(self, reading: EngineReading) -> None:
        """Take a reading. An idle engine is not expected to move."""
        if all(counter is None for counter in reading.movement):
            return
        self._working = bool(reading.load)
        if reading.movement != self._movement or not self._working:
            self._movement = reading.movement
            self._moved_at = reading.at

    def age_ms(self, now: float, failures: int) -> float | None:
        """ms since the counters last moved; None where none were ever read. While the engine is idle and
        answers this is 0; once it stops answering (`failures` in a row) the age runs on."""
        if self._moved_at is None:
            return None
        if not self._working and failures == 0:
            return 0.0
        return max(0.0, now - self._moved_at)
