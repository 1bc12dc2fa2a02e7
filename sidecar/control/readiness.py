"""Whether a backend may get requests, with hysteresis: one bad look takes nobody out, one good look brings
nobody back who keeps falling."""

from __future__ import annotations

from collections import deque
from typing import Final

from sidecar.telemetry.health import Look
from tokenweir.contract.records import State

FALL: Final = 2
"""Bad looks in a row that take a ready backend out."""
RISE: Final = 2
"""Good looks in a row that bring one back that was down; doubles with each recent fall."""
RISE_MOST: Final = 16
FLAP_WINDOW_MS: Final = 60_000
ALIVE_MS: Final = 3000
"""A request that ended well this recently proves that an engine lives whose metrics page is late: under load
that page is answered last."""


class Readiness:
    """starting -> ready -> down -> ready. `observe` takes each look."""

    def __init__(self) -> None:
        self.state = State.STARTING
        self.reason = "not looked at yet"
        self._good = 0
        self._bad = 0
        self._falls: deque[float] = deque(maxlen=8)

    def observe(self, look: Look, text: str, now: float, served_at: float | None = None) -> bool:
        """Take one look at monotonic `now`; `served_at` is when a request last ended well there. Returns
        whether the state changed."""
        before = self.state
        if look is Look.OK:
            self._observe_good(now)
        elif look is Look.LOADING:
            self._good = self._bad = 0
            self.state, self.reason = State.STARTING, text
        else:
            self._observe_bad(look, text, now, served_at)
        return self.state is not before

    def forgive(self) -> None:
        """It is in service: another sidecar knew that its engine lives, though it did not answer in time."""
        self._bad = 0
        if self.state is not State.READY:
            self.state, self.reason = State.READY, "in service under the sidecar that led before"

    def _observe_good(self, now: float) -> None:
        self._good, self._bad = self._good + 1, 0
        if self.state is State.DOWN:
            needed = self._rise(now)
            if self._good < needed:
                self.reason = f"answers again: {self._good} of {needed} good looks"
                return
        self.state, self.reason = State.READY, "answers and serves"

    def _observe_bad(self, look: Look, text: str, now: float, served_at: float | None) -> None:
        self._good, self._bad = 0, self._bad + 1
        if self.state is State.DOWN:
            self.reason = text
            return
        if look is Look.LATE and served_at is not None and now - served_at < ALIVE_MS:
            self.reason = f"{text}, but a request ended well {now - served_at:.0f} ms ago"
            return
        if self._bad < FALL:
            self.reason = f"{text} (once)"
            return
        if self.state is State.READY:
            self._falls.append(now)
        self.state, self.reason = State.DOWN, text

    def _rise(self, now: float) -> int:
        recent = sum(1 for at in self._falls if now - at < FLAP_WINDOW_MS)
        return int(min(RISE * 2 ** max(recent - 1, 0), RISE_MOST))
