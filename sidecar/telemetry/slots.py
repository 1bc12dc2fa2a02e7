"""The moments within an interval at which looks begin.

Looks that share a slot share the event loop's turn: with hundreds of backends that takes less CPU than waking
for each.
"""

from __future__ import annotations

from typing import Final

SLOTS: Final = 16
"""Of an interval."""


def to_slot(now: float, wait: float, interval: float) -> float:
    """The wait from `now` on, shortened or lengthened to the nearest slot. All in ms."""
    slot = interval / SLOTS
    return max(round((now + wait) / slot) * slot - now, 0)
