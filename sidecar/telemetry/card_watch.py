"""Watches the GPUs of one host and hands each backend on it the reading of its own cards."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sidecar.clock import monotonic_ms
from sidecar.telemetry import cards
from sidecar.telemetry.card_sources import CardSource, SourceError
from sidecar.telemetry.readings import Card, Record, XidEvent
from sidecar.telemetry.slots import to_slot
from sidecar.telemetry.xid import XidEdges

NOTE: Final = "cards"
"""Name of the note in the record that says why there is no reading."""
BACK_OFF_MOST: Final = 8
JITTER: Final = 0.1

OnXid = Callable[[str, XidEvent], None]


@dataclass(frozen=True, slots=True)
class Share:
    """A backend's part of a host's cards."""

    record: Record
    wanted: tuple[str, ...]
    """Names of its cards; empty: all that the labels leave."""
    labels: Mapping[str, str]

    @property
    def whole(self) -> bool:
        """Whether it takes every card that is there."""
        return not self.wanted and not self.labels


class CardWatch:
    """One host. `shares` are the backends on it."""

    def __init__(self, name: str, source: CardSource, interval_ms: int, on_xid: OnXid) -> None:
        self.name = name
        self.shares: dict[str, Share] = {}
        self.failures = 0
        """Failed looks in a row."""
        self._source = source
        self._interval_ms = interval_ms
        self._on_xid = on_xid
        self._edges = XidEdges()
        self._last: Sequence[Card] = ()
        self._chosen: dict[str, tuple[Share, list[int]]] = {}
        """Which of the last cards are a backend's."""

    async def run(self, phase_ms: float = 0) -> None:
        """Look for ever, first `phase_ms` after the start."""
        await asyncio.sleep(phase_ms / 1000)
        while True:
            began = monotonic_ms()
            await self.look()
            factor = min(2 ** max(self.failures - 2, 0), BACK_OFF_MOST)
            pause = self._interval_ms * factor * random.uniform(1 - JITTER, 1 + JITTER)
            now = monotonic_ms()
            pause = max(pause - (now - began), 0.1 * self._interval_ms, self._source.rest_ms)
            await asyncio.sleep(to_slot(now, pause, self._interval_ms) / 1000)

    async def look(self) -> None:
        """Look once. A failed look leaves the last readings with their age; decisions judge that."""
        try:
            source, found = await self._source.read()
        except SourceError as error:
            self.failures += 1
            for share in self.shares.values():
                share.record.notes[NOTE] = str(error)
            return
        self.failures = 0
        now = monotonic_ms()
        events = self._edges.observe(found, now)
        shared = len(self.shares) > 1 and len(found) > 1
        if not _same(self._last, found):
            self._chosen.clear()
        self._last = found
        for backend_id, share in self.shares.items():
            if share.whole and shared:
                share.record.card = None
                share.record.notes[NOTE] = (
                    f"{self.name} is shared by {', '.join(sorted(self.shares))}: "
                    "say which GPUs are this backend's (`cards` or `card_labels`)"
                )
                continue
            try:
                own = self._own(backend_id, share)
            except cards.SelectionError as error:
                share.record.card = None
                share.record.notes[NOTE] = f"{self.name}: {error}"
                continue
            share.record.card = cards.fold(own, now, source)
            share.record.notes.pop(NOTE, None)
            names = {card.uuid for card in own}
            for event in events:
                if event.card in names:
                    share.record.xids.append(event)
                    share.record.xid_counts[event.code] += 1
                    self._on_xid(backend_id, event)

    def _own(self, backend_id: str, share: Share) -> list[Card]:
        """The backend's cards among the last ones: chosen anew only where these or its share changed.
        Raises SelectionError."""
        known = self._chosen.get(backend_id)
        if known is not None and known[0] is share:
            return [self._last[place] for place in known[1]]
        own = cards.select(self._last, share.wanted, share.labels)
        places = [next(k for k, one in enumerate(self._last) if one is card) for card in own]
        self._chosen[backend_id] = share, places
        return own

    def close(self) -> None:
        """Let go of the source."""
        self._source.close()


def _same(before: Sequence[Card], now: Sequence[Card]) -> bool:
    """Whether these are the same cards in the same order: a reader hands out labels that have not changed as
    the very same object, and what a card is called stands in them."""
    return len(before) == len(now) and all(
        one.labels is other.labels for one, other in zip(before, now, strict=True)
    )
