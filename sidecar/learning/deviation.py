"""How far predictions are from what came out, over the last minutes.

The *prediction deviation* of a minute is |sum predicted - sum measured| / sum measured: what the fleet's
memory is planned by. The *per-request error* is the sum of the absolute differences over the sum measured,
of five minutes: no one can bring that near zero, since outputs of one prompt differ from run to run."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import Final

from tokenweir.contract import names
from tokenweir.contract.records import Completion, Outcome

FLEET: Final = ""
"""The name under which all models together stand."""
LIMIT: Final = 0.2
"""Deviation that the article allows."""
MINUTE_MS: Final = 60_000
KEPT_MINUTES: Final = 5


@dataclass(slots=True)
class Sums:
    """Tokens of one minute."""

    predicted: float = 0.0
    measured: float = 0.0
    error: float = 0.0
    answers: int = 0


@dataclass(frozen=True, slots=True)
class Figures:
    """`deviation` of the last whole minute and the `answers` that it is of, `error` of the last five minutes;
    None where nothing was measured."""

    deviation: float | None
    error: float | None
    answers: int = 0


class Deviation:
    """The sums of the last minutes, of the fleet and of each model. Times are those of the records."""

    def __init__(self) -> None:
        self._minutes: dict[str, deque[tuple[int, Sums]]] = {}

    def add(self, record: Completion) -> None:
        """One believed record; only answers that are whole and counted say something."""
        if record.outcome is not Outcome.OK or record.output is None or record.output_source == "none":
            return
        if record.kind in {"embeddings", "other"}:
            return
        minute = record.time_ms // MINUTE_MS
        for name in (FLEET, record.model):
            sums = self._sums(name, minute)
            if sums is None:
                continue
            predicted = record.mean * record.n
            sums.predicted += predicted
            sums.measured += record.output
            sums.error += abs(predicted - record.output)
            sums.answers += 1

    def _sums(self, name: str, minute: int) -> Sums | None:
        minutes = self._minutes.get(name)
        if minutes is None:
            if len(self._minutes) > names.MAX_MODELS:
                del self._minutes[min(self._minutes, key=self._newest)]
            minutes = self._minutes[name] = deque(maxlen=KEPT_MINUTES + 1)
        for kept, sums in minutes:
            if kept == minute:
                return sums
        if minutes and minute < minutes[-1][0]:
            return None  # too late to count
        sums = Sums()
        minutes.append((minute, sums))
        return sums

    def _newest(self, name: str) -> float:
        return float("inf") if name == FLEET else self._minutes[name][-1][0]

    def figures(self, now_ms: int) -> dict[str, Figures]:
        """The figures by model; `FLEET` for all together."""
        return {name: self._figures(name, now_ms // MINUTE_MS) for name in self._minutes}

    def _figures(self, name: str, now: int) -> Figures:
        minutes = self._minutes[name]
        last = next((sums for minute, sums in minutes if minute == now - 1), None)
        recent = [sums for minute, sums in minutes if now - KEPT_MINUTES <= minute < now]
        measured = sum(sums.measured for sums in recent)
        return Figures(
            deviation=abs(last.predicted - last.measured) / last.measured if last and last.measured else None,
            error=sum(sums.error for sums in recent) / measured if measured else None,
            answers=last.answers if last else 0,
        )
