"""Which records of each source were counted: a gap is a loss, an overlap a batch that came twice.

A source is one gateway worker since its start; it numbers its records. What a worker could not send at its
end others send for it, so batches of one source may overtake each other: a gap may close for a while before
it is called a loss.
"""

from __future__ import annotations

from typing import Any, Final

MOST_SOURCES: Final = 4096
MOST_GAPS: Final = 64
"""Of one source; beyond, the oldest is given up."""
GRACE_MS: Final = 10_000
"""How long a gap may close."""

Range = tuple[int, int]
"""Positions from the first to before the second."""


class Source:
    """The count of one source."""

    __slots__ = ("gaps", "next")

    def __init__(self, expected: int) -> None:
        self.next = expected
        self.gaps: list[tuple[int, int, int]] = []
        """(from, to before, wall ms at which it was seen), in the order of their numbers."""


class Sources:
    """The counts of all sources, the least recently heard forgotten first."""

    def __init__(self) -> None:
        self._sources: dict[str, Source] = {}
        self.lost = 0
        """Records that were made and did not come in time."""
        self.repeated = 0
        """Records that came again and were not counted again."""

    @property
    def missing(self) -> int:
        """Records that were overtaken by later ones and may still come."""
        return sum(end - start for source in self._sources.values() for start, end, _ in source.gaps)

    def admit(self, name: str, first: int, count: int, fresh: bool, now_ms: int) -> list[Range]:
        """Which of the `count` records from number `first` on are to be counted, as positions in the batch.
        `fresh`: nothing is remembered of any source, so the first number heard of each is taken as it is."""
        source = self._sources.pop(name, None) or Source(first if fresh else 0)
        self._sources[name] = source
        last = first + count
        new = _fill(source, first, last)
        if first > source.next:
            source.gaps.append((source.next, first, now_ms))
            if len(source.gaps) > MOST_GAPS:
                self._give_up(source.gaps.pop(0))
        if last > source.next:
            new.append((max(first, source.next), last))
            source.next = last
        self.repeated += count - sum(end - start for start, end in new)
        while len(self._sources) > MOST_SOURCES:
            for gap in self._sources.pop(next(iter(self._sources))).gaps:
                self._give_up(gap)
        return [(start - first, end - first) for start, end in new]

    def settle(self, now_ms: int) -> None:
        """Call the gaps a loss that did not close in time."""
        for source in self._sources.values():
            if source.gaps and now_ms - source.gaps[0][2] >= GRACE_MS:
                for gap in source.gaps:
                    if now_ms - gap[2] >= GRACE_MS:
                        self._give_up(gap)
                source.gaps = [gap for gap in source.gaps if now_ms - gap[2] < GRACE_MS]

    def dump(self) -> dict[str, Any]:
        """The state as plain JSON."""
        sources = {name: [source.next, source.gaps] for name, source in self._sources.items()}
        return {"sources": sources, "lost": self.lost, "repeated": self.repeated}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Sources:
        """The object behind a dump. Raises ValueError, KeyError or TypeError on a damaged one."""
        sources = cls()
        for name, (expected, gaps) in state["sources"].items():
            source = sources._sources[str(name)] = Source(int(expected))
            source.gaps = [(int(start), int(end), int(since)) for start, end, since in gaps]
        sources.lost, sources.repeated = int(state["lost"]), int(state["repeated"])
        return sources

    def _give_up(self, gap: tuple[int, int, int]) -> None:
        self.lost += gap[1] - gap[0]


def _fill(source: Source, first: int, last: int) -> list[Range]:
    """Close the source's gaps with the records from `first` to before `last`; what closed them."""
    closed: list[Range] = []
    left: list[tuple[int, int, int]] = []
    for start, end, since in source.gaps:
        low, high = max(start, first), min(end, last)
        if low >= high:
            left.append((start, end, since))
            continue
        closed.append((low, high))
        if start < low:
            left.append((start, low, since))
        if high < end:
            left.append((high, end, since))
    source.gaps = left
    return closed
