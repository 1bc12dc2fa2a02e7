"""When an engine is warm: small real prompts until its time to first token is steady."""

from __future__ import annotations

from statistics import median
from typing import Final

from tokenweir.config.control import RampConfig

STEADY: Final = 3
"""Times in a row that must agree."""
AGREE: Final = 0.25
"""Share by which they may differ from their median."""
NOTICEABLE_MS: Final = 20.0
"""Smaller differences are noise of the network and the scheduler."""
MOST_REFUSALS: Final = 3


class WarmUp:
    """One warm-up, begun at monotonic `now`."""

    def __init__(self, now: float) -> None:
        self.began = now
        self.times: list[float] = []
        self.refusals = 0

    def answered(self, ttft_ms: float) -> None:
        """A prompt was answered."""
        self.times.append(ttft_ms)
        self.refusals = 0

    def refused(self) -> None:
        """A prompt was refused as one that the engine does not serve: the next will be, too."""
        self.refusals += 1

    @property
    def steady(self) -> bool:
        """Whether the last times agree."""
        if len(self.times) < STEADY:
            return False
        last = self.times[-STEADY:]
        middle = median(last)
        return all(abs(time - middle) <= max(AGREE * middle, NOTICEABLE_MS) for time in last)

    def over(self, config: RampConfig, now: float) -> str | None:
        """Why it is over, in words; None while it is not."""
        if self.steady:
            return f"warm: time to first token steady at {median(self.times[-STEADY:]):.0f} ms"
        if len(self.times) >= config.warm_up:
            return f"warmed with {len(self.times)} prompts, not steady yet"
        if self.refusals >= MOST_REFUSALS:
            return f"not warmed: {self.refusals} prompts in a row were refused"
        if now - self.began >= config.warm_up_limit:
            return f"warm-up ended after {config.warm_up_limit / 1000:.0f} s"
        return None

    def text(self) -> str:
        """How far it has come, in words."""
        last = f", the last in {self.times[-1]:.0f} ms" if self.times else ""
        return f"warming: {len(self.times)} prompts answered{last}"
