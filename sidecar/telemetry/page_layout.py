"""Where the wanted figures stand on one exporter's page, learnt from one page and used for the next ones.

A page of eight cards has 140 samples in 22 KB, most of it labels that never change. So of a line only the
value is looked at, once the name and labels before it are found to be those of the page before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Generic, TypeVar

LABELS_END: Final = b"} "

What = TypeVar("What")
"""What a value is about, in the caller's terms."""


class Layout(Generic[What]):
    """The places of the wanted values on pages that are made alike."""

    def __init__(self) -> None:
        self.wanted: list[What] = []
        """What there is on such a page, in the order of `values`."""
        self._places: list[tuple[int, bytes, int]] = []
        """Number of the line, what it begins with, and how much that is."""
        self._lines = 0

    def learn(
        self, body: bytes, wanted: Callable[[bytes, bytes], What | None], order: Callable[[What], int]
    ) -> None:
        """Learn from a page: `wanted(name, labels)` says what a sample is about; None of others. `order`: in
        which the values are wanted."""
        lines = body.split(b"\n")
        found: list[tuple[What, tuple[int, bytes, int]]] = []
        for number, line in enumerate(lines):
            head = line[: line.rfind(LABELS_END)]
            name, _, labels = head.partition(b"{")
            what = wanted(name, labels)
            if what is not None:
                start = head + LABELS_END
                found.append((what, (number, start, len(start))))
        found.sort(key=lambda one: order(one[0]))
        self.wanted = [what for what, _ in found]
        self._places = [place for _, place in found]
        self._lines = len(lines)

    def forget(self) -> None:
        """Know no page."""
        self.wanted, self._places = [], []

    def values(self, body: bytes) -> list[float] | None:
        """What is `wanted`; None where the page is not made as the one that was learnt from, or has more than
        a number after the labels."""
        lines = body.split(b"\n")
        if len(lines) != self._lines or not self._places:
            return None
        try:
            found = [
                float(lines[number][size:])
                for number, start, size in self._places
                if lines[number].startswith(start)
            ]
        except ValueError:
            return None
        return found if len(found) == len(self._places) else None
