"""Stops of spares that went back: ordered until they are carried out.

A stop that fails, or that a sidecar could not carry out because it ended, must not leave a spare running, and
costing, for ever. To stop an engine that is stopped already does nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Final

AGAIN_MS: Final = 60_000
"""After a stop that failed the next one is ordered so long later."""


class SpareStops:
    """The stops of all spares."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        """Spare -> when its stop is to be ordered, monotonic ms; infinite while that is under way."""

    def wanted(self, spare: str) -> None:
        """A spare went back, and is to be stopped."""
        self._due.setdefault(spare, float("-inf"))

    def due(self, returned: Collection[str], now: float) -> list[str]:
        """Those to be stopped now; they count as ordered then. `returned` are the spares that are not in
        service: any other is wanted again, or gone."""
        self._due = {name: at for name, at in self._due.items() if name in returned}
        found = [name for name, at in self._due.items() if now >= at]
        self._due.update(dict.fromkeys(found, float("inf")))
        return found

    def carried_out(self, spare: str, ok: bool, now: float) -> None:
        """The actuator has answered."""
        if ok:
            self._due.pop(spare, None)
        elif spare in self._due:
            self._due[spare] = now + AGAIN_MS

    def names(self) -> list[str]:
        """The spares that are not stopped yet."""
        return list(self._due)

    def restore(self, spares: Iterable[str]) -> None:
        """Go on with those that another sidecar did not get stopped."""
        self._due = dict.fromkeys((str(name) for name in spares), float("-inf"))
