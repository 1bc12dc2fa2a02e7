"""XID errors as they come up.

DCGM's gauge keeps the last error for ever, so its value says nothing about now: what counts is that it
changes, or that a count of the exporter rises. What was there at the first look is old news.
https://docs.nvidia.com/deploy/xid-errors/
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sidecar.telemetry.readings import Card, XidEvent

SAME_MS: Final = 10_000
"""An error told by the gauge and, this much later at most, by the count is one error."""


class XidEdges:
    """The cards of one host."""

    def __init__(self) -> None:
        self._gauges: dict[str, int] = {}
        self._counts: dict[str, dict[int, float]] = {}
        self._by_gauge: dict[tuple[str, int], float] = {}

    def observe(self, cards: Sequence[Card], at: float) -> list[XidEvent]:
        """The errors that are new since the look before, at monotonic `at`."""
        events: list[XidEvent] = []
        for card in cards:
            codes = self._counted(card, at)
            if not codes:
                codes = self._gauged(card, at)
            if card.xid is not None:
                self._gauges[card.uuid] = card.xid
            self._counts[card.uuid] = dict(card.xid_counts or {})
            events += [XidEvent(at=at, code=code, card=card.uuid, index=card.index) for code in codes]
        return events

    def _counted(self, card: Card, at: float) -> list[int]:
        """Codes whose count rose. The exporter's counts are of a window, or begin anew with it: one that
        falls is no error."""
        before = self._counts.get(card.uuid)
        if before is None or card.xid_counts is None:
            return []
        risen = [code for code, count in card.xid_counts.items() if count > before.get(code, 0)]
        return [code for code in risen if at - self._by_gauge.get((card.uuid, code), -SAME_MS) >= SAME_MS]

    def _gauged(self, card: Card, at: float) -> list[int]:
        """The gauge's code, if it is another one than before; a count that tells of it already is enough."""
        before = self._gauges.get(card.uuid)
        if card.xid is None or before is None or card.xid in {0, before}:
            return []
        if (card.xid_counts or {}).get(card.xid):
            return []
        self._by_gauge[card.uuid, card.xid] = at
        return [card.xid]
