"""A ratio of two running sums that forget."""

from __future__ import annotations

import math
from typing import Any, Final

DECAY: Final = 1 - 1 / 2000


class Ratio:
    """Sum of one thing over the sum of another, older pairs weighing less."""

    def __init__(self) -> None:
        self._over = 0.0
        self._under = 0.0

    def add(self, over: float, under: float) -> None:
        """One pair; `under` above 0."""
        self._over = self._over * DECAY + over
        self._under = self._under * DECAY + under

    def value(self, default: float, low: float, high: float) -> float:
        """The ratio, kept between `low` and `high`; `default` before the first pair."""
        if self._under <= 0:
            return default
        return min(max(self._over / self._under, low), high)

    def dump(self) -> list[float]:
        """The state as plain JSON."""
        return [self._over, self._under]

    @classmethod
    def restore(cls, state: Any) -> Ratio:
        """The object behind a dump. Raises ValueError or TypeError on a damaged one."""
        ratio = cls()
        over, under = (float(part) for part in state)
        if not (math.isfinite(over) and math.isfinite(under)) or over < 0 or under < 0:
            raise ValueError("not finite numbers from 0")
        ratio._over, ratio._under = over, under
        return ratio
