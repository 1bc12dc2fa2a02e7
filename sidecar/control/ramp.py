"""How much of its fair share a new, restarted or promoted backend may take: little at first, more each
minute."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenweir.config.control import RampConfig

MINUTE_MS = 60_000


class Ramp:
    """The ramp of one backend."""

    def __init__(self) -> None:
        self.share = 1.0
        self.reason: str | None = None
        self._at = 0.0

    @property
    def going_on(self) -> bool:
        """Whether it has not all of its share yet."""
        return self.share < 1

    def begin(self, config: RampConfig, now: float) -> None:
        """It has just come into service."""
        self.share = config.start if config.enabled else 1.0
        self._at = now
        self.reason = f"ramp: {self.share:.0%} of its share" if self.going_on else None

    def end(self) -> None:
        """It gets all of its share at once."""
        self.share, self.reason = 1.0, None

    def update(self, config: RampConfig, now: float, worse: str | None, hurry: bool) -> None:
        """Let time pass: `worse` says why it must not grow now, `hurry` that others are refusing."""
        if not self.going_on:
            return
        if not config.enabled:
            self.end()
            return
        elapsed, self._at = max(0.0, now - self._at), now
        if worse is not None:
            self.reason = f"ramp: held at {self.share:.0%} of its share: {worse}"
            return
        rate = config.per_minute * (config.hurry if hurry else 1)
        self.share = min(1.0, self.share + rate * elapsed / MINUTE_MS)
        pace = f"{rate:.0%} a minute" + (", as others are refusing" if hurry else "")
        self.reason = f"ramp: {self.share:.1%} of its share, {pace}" if self.going_on else None

    def dump(self) -> dict[str, Any]:
        """What another sidecar needs to go on."""
        return {"share": self.share}

    def restore(self, state: Mapping[str, Any], now: float) -> None:
        """Take over a dump. Raises KeyError, TypeError, ValueError on a strange one."""
        self.share = min(max(float(state["share"]), 0.0), 1.0)
        self._at = now


def admitted(shares: Sequence[float]) -> list[float]:
    """What backends of one model may take, given their ramps: a new one never more than its share, but where
    all are new, all are, so the furthest one counts as full."""
    most = max(shares, default=1.0)
    return [min(1.0, share / most) if most > 0 else 1.0 for share in shares]
