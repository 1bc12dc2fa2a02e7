"""The breaker's levels 1 and 2 for one model: when memory stays full and the queue no longer helps, new
sessions are refused; fuller still, low priority is dropped."""

from __future__ import annotations

from collections.abc import Callable

from sidecar.control.latch import Latch
from sidecar.control.model_load import ModelLoad
from tokenweir.config.control import BreakerConfig, BreakerRule
from tokenweir.contract.records import Priority


class Breaker:
    """Levels 1 and 2 of one model. Each is left at `release` below its threshold."""

    def __init__(self) -> None:
        self.refuse_new = Latch()
        self.drop_low = Latch()
        self.reasons: list[str] = []
        """Why a level holds; empty without one."""

    def update(
        self, load: ModelLoad, config: BreakerConfig, longest_wait: Callable[[Priority], float], now: float
    ) -> bool:
        """Decide at monotonic `now`; returns whether a level was entered or left. `longest_wait` is what each
        class may wait, ms."""
        changed = False
        self.reasons = []
        # While the queue still serves in time, being full goes on to be timed but does not count.
        spent = load.waiting.share(longest_wait) > config.wait_share
        hold = config.hold if spent else float("inf")
        if config.rule is BreakerRule.LITERAL:
            hold = 0
        for number, latch, threshold, name in (
            (1, self.refuse_new, config.refuse_new, "new sessions are refused"),
            (2, self.drop_low, config.drop_low, "low priority is dropped"),
        ):
            # Without a reading nothing is claimed: a level that nobody can justify any more ends.
            over = config.enabled and load.use is not None and load.use > threshold
            below = not config.enabled or load.use is None or load.use < threshold - config.release
            changed |= latch.update(over, below, now, hold=hold, stay=config.stay)
            if latch.on:
                self.reasons.append(f"level {number}: {name}: {load.text()}, threshold {threshold:.0%}")
        return changed
