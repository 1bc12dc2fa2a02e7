"""Burst mode of one model: arrivals have jumped over their usual rate, and the fleet feels it."""

from __future__ import annotations

from typing import Final

from sidecar.control.arrivals import Arrivals
from sidecar.control.latch import Latch
from sidecar.control.model_load import ModelLoad
from tokenweir.config.control import BurstConfig, BurstRule

CALM: Final = 0.5
"""It is over when less than this share of the jump is left ..."""
RELIEF: Final = 0.1
"""... or the load has fallen so far below its threshold and nobody waits."""
LEAVE_HOLD_MS: Final = 5000


class Burst:
    """The mode of one model."""

    def __init__(self) -> None:
        self.mode = Latch()
        self.arrivals = Arrivals()
        self.reason = ""
        """Why it holds; empty without."""

    def arrived(self, count: int, now: float) -> None:
        """So many requests came since the last call."""
        self.arrivals.observe(count, now, self.mode.on)

    def update(self, load: ModelLoad, config: BurstConfig, now: float) -> bool:
        """Decide at monotonic `now`; returns whether the mode began or ended."""
        usual, fast = self.arrivals.usual, self.arrivals.fast
        jumped = usual is not None and fast > (1 + config.jump) * usual and self._enough(config)
        calm = usual is None or fast <= (1 + CALM * config.jump) * usual
        waits = load.waiting.depth > 0
        if config.rule is BurstRule.LOADED:
            jumped = jumped and (waits or (load.use is not None and load.use > config.load))
            calm = calm or (not waits and (load.use is None or load.use < config.load - RELIEF))
        enter, leave = config.enabled and jumped, calm or not config.enabled
        changed = self.mode.update(enter, leave, now, stay=config.stay, leave_hold=LEAVE_HOLD_MS)
        self.reason = ""
        if self.mode.on:
            self.reason = (
                f"burst{', about to end' if leave else ''}: {fast:.1f} requests/s, usually {usual or 0:.1f}; "
                f"{load.text()}: "
                f"answers of at most {config.max_tokens} tokens"
            )
        return changed

    def _enough(self, config: BurstConfig) -> bool:
        """Whether so many came that it is no chance; the article's rule does not ask."""
        return config.rule is BurstRule.LITERAL or self.arrivals.last_second() >= config.least_arrivals
