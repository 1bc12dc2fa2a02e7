"""How far predicted outputs are from what came, per model: the sums that memory and time are planned by."""

from __future__ import annotations

from collections import deque
from typing import Final

from sidecar.telemetry.indicators import Indicator, deviation
from tokenweir.contract.records import Completion, Outcome

KEPT: Final = 500
"""Requests of a model that are looked back on."""
LEAST: Final = 50
MOST_MODELS: Final = 256


class Deviations:
    """The last requests of each model that ended well and whose output is known."""

    def __init__(self) -> None:
        self._models: dict[str, deque[tuple[float, float]]] = {}

    def add(self, record: Completion) -> None:
        """One believed record."""
        if record.outcome is not Outcome.OK or record.output is None or record.output_source == "none":
            return
        if record.mean <= 0:
            return
        seen = self._models.get(record.model)
        if seen is None:
            if len(self._models) >= MOST_MODELS:
                return
            seen = self._models[record.model] = deque(maxlen=KEPT)
        seen.append((record.mean * record.n, record.output))

    def now(self) -> dict[str, Indicator]:
        """By model."""
        return {
            model: deviation(
                sum(predicted for predicted, _ in seen), sum(actual for _, actual in seen), len(seen), LEAST
            )
            for model, seen in self._models.items()
        }
