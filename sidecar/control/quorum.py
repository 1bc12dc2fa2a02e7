"""The breaker's level 4 for one model: with too few of its backends usable, its requests go to the fallback
role until enough are back."""

from __future__ import annotations

from sidecar.control.latch import Latch
from tokenweir.config.control import BreakerConfig


class Quorum:
    """Level 4 of one model."""

    def __init__(self) -> None:
        self.fallback = Latch()
        self.reason = ""
        """Why it holds; empty without."""

    def update(self, usable: int, expected: int, fallbacks: int, config: BreakerConfig, now: float) -> bool:
        """Decide: `usable` backends of the model may get requests, spares in service among them, `expected`
        are configured as active, and `fallbacks` of the role fallback are there. Returns whether the level
        was entered or left."""
        short = expected > 0 and usable < config.quorum * expected
        changed = self.fallback.update(
            short and fallbacks > 0,
            not short or fallbacks == 0,
            now,
            leave_hold=config.quorum_hold if fallbacks else 0,
        )
        self.reason = ""
        if self.fallback.on:
            self.reason = (
                f"level 4: {usable} of {expected} backends are usable, fewer than {config.quorum:.0%}: "
                f"{fallbacks} of the role fallback serve"
            )
        return changed
