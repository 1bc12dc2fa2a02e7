"""A switch with hysteresis: on after a condition has held, off after another has, and never for less than its
shortest stay. Every mode of the control loop is one, so none can flap."""

from __future__ import annotations


class Latch:
    """One switch. Times are monotonic ms."""

    def __init__(self) -> None:
        self.on = False
        self.since = float("-inf")
        """When it last switched."""
        self.changes = 0
        self._entering: float | None = None
        self._leaving: float | None = None

    def update(
        self, enter: bool, leave: bool, now: float, *, hold: float = 0, stay: float = 0, leave_hold: float = 0
    ) -> bool:
        """Take the two conditions as they are at `now`; returns whether it switched.

        It goes on when `enter` has been true for `hold` ms, off when `leave` has been true for `leave_hold`
        and it was on for `stay`."""
        self._entering = (now if self._entering is None else self._entering) if enter else None
        self._leaving = (now if self._leaving is None else self._leaving) if leave else None
        if not self.on:
            if self._entering is None or now - self._entering < hold:
                return False
        elif self._leaving is None or now - self._leaving < leave_hold or now - self.since < stay:
            return False
        self.on = not self.on
        self.since = now
        self.changes += 1
        self._entering = self._leaving = None
        return True

    def held(self, now: float) -> float:
        """For how long the condition to enter has been true, ms."""
        return 0.0 if self._entering is None else now - self._entering

    def restore(self, on: bool, now: float) -> None:
        """Take over what another sidecar had decided; its stay begins anew."""
        if on != self.on:
            self.on, self.since = on, now
            self._entering = self._leaving = None
