"""Which records of each source were counted: a gap is a loss, an overlap a batch that came twice.

A source is one gateway worker since its start; it numbers its records (DESIGN section 3, the completions
stream).
"""

from __future__ import annotations

from typing import Any, Final

MOST_SOURCES: Final = 4096


class Sources:
    """The next expected number of every source, the least recently heard forgotten first."""

    def __init__(self) -> None:
        self._next: dict[str, int] = {}
        self.lost = 0
        """Records that were made and never came."""
        self.repeated = 0
        """Records that came again and were not counted again."""

    def admit(self, source: str, first: int, count: int, fresh: bool) -> int:
        """How many of the `count` records from number `first` on are to be skipped. `fresh`: nothing is
        remembered of any source, so the first number heard of each is taken as it is."""
        expected = self._next.pop(source, None)
        if expected is None:
            expected = first if fresh else 0
        self._next[source] = max(expected, first + count)
        while len(self._next) > MOST_SOURCES:
            del self._next[next(iter(self._next))]
        if first >= expected:
            self.lost += first - expected
            return 0
        skipped = min(expected - first, count)
        self.repeated += skipped
        return skipped

    def dump(self) -> dict[str, Any]:
        """The state as plain JSON."""
        return {"next": self._next, "lost": self.lost, "repeated": self.repeated}

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Sources:
        """The object behind a dump. Raises ValueError, KeyError or TypeError on a damaged one."""
        sources = cls()
        sources._next = {str(source): int(number) for source, number in state["next"].items()}
        sources.lost, sources.repeated = int(state["lost"]), int(state["repeated"])
        return sources
