"""Starts of promoted spares: ordered until the engine is there, with growing pauses.

A start that fails, or that a sidecar could not carry out because it ended, must not leave a promoted spare
away for ever. To start an engine that runs already does nothing, so a start is ordered again where nobody
knows what became of it.
"""

from __future__ import annotations

from dataclasses import dataclass

from tokenweir.config.control import RestartConfig


@dataclass(slots=True)
class Attempt:
    """The starts of one spare since its promotion. Times are monotonic ms."""

    count: int = 0
    failures: int = 0
    ordered: bool = False
    """Whether the actuator is at work."""
    at: float = 0.0
    """When it was ordered, or had answered, last."""
    text: str = ""


class SpareStarts:
    """The starts of all spares."""

    def __init__(self) -> None:
        self._attempts: dict[str, Attempt] = {}

    def due(self, spare: str, config: RestartConfig, now: float) -> bool:
        """Whether a promoted spare that is not there is to be started now; it counts as ordered then."""
        attempt = self._attempts.setdefault(spare, Attempt())
        if attempt.ordered:
            return False
        if attempt.count and not attempt.text and now - attempt.at >= config.give_up:
            attempt.failures += 1
            attempt.text = f"it does not serve {config.give_up / 1000:.0f} s after its start"
        elif attempt.count and now - attempt.at < self._pause(attempt, config):
            return False
        attempt.count += 1
        attempt.ordered, attempt.at = True, now
        return True

    def carried_out(self, spare: str, ok: bool, text: str, now: float) -> None:
        """The actuator has answered."""
        attempt = self._attempts.get(spare)
        if attempt is not None:
            attempt.ordered, attempt.at = False, now
            attempt.failures = attempt.failures if ok else attempt.failures + 1
            attempt.text = "" if ok else text

    def problem(self, spare: str) -> str | None:
        """Why a spare is not to be counted on, in words; None while it may still come."""
        attempt = self._attempts.get(spare)
        if attempt is None or not attempt.failures:
            return None
        return attempt.text or f"it is started again; {attempt.failures} of its starts failed"

    def forget(self, spare: str) -> None:
        """It serves, or is no longer wanted."""
        self._attempts.pop(spare, None)

    def _pause(self, attempt: Attempt, config: RestartConfig) -> float:
        if not attempt.text:
            return float(config.give_up)
        return min(config.back_off * 2.0 ** (attempt.failures - 1), float(config.back_off_most))
