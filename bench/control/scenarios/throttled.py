"""A GPU runs at a third of its speed: its share of the requests falls to match."""

from __future__ import annotations

import asyncio
import time

from bench.control.fleet import ACTIVE
from bench.control.result import Result, after
from bench.control.stage import Setup, Stage
from bench.report import Bar

SLOW = "engine-2"
FACTOR = 3.0
MATCH = 1 / FACTOR / (ACTIVE - 1 + 1 / FACTOR)
"""Its share of the fleet's speed then."""
WINDOW_S = 5.0
SETUP = Setup(rate=20.0, level=0.3)
"""Requests from elsewhere keep every engine at work: its own counters tell its speed."""


def _share(stage: Stage, start: float, end: float) -> float:
    sent = [record.backend == SLOW for record in stage.records() if start <= record.sent < end]
    return sum(sent) / len(sent) if sent else 0.0


async def run(stage: Stage, quick: bool) -> Result:
    """Slow one down, wait, let it go."""
    seconds = 8 if quick else 60

    def base() -> float:
        return float(stage.observer.last.backend(SLOW)["cost"]["base"])

    await asyncio.sleep(WINDOW_S if quick else 20)
    slowed = await stage.fault(SLOW, kind="slow", factor=FACTOR)
    usual, before = base(), _share(stage, slowed - WINDOW_S, slowed)
    told = await stage.until(lambda: base() > 0.7 * FACTOR * usual, 60)
    await asyncio.sleep(max(0.0, slowed + seconds - time.monotonic()))
    freed = await stage.fault(SLOW, kind="none")
    again = await stage.until(lambda: base() < 1.2 * usual, 60)
    await asyncio.sleep(2 if quick else WINDOW_S)
    starts = [slowed + step / 2 for step in range(int(2 * (freed - slowed - WINDOW_S)) + 1)]
    matched = next((at for at in starts if _share(stage, at, at + WINDOW_S) <= 1.2 * MATCH), None)
    return Result(
        detected_s=after(told, slowed),
        acted_s=after(matched, slowed),
        recovered_s=after(again, freed),
        figures={
            "share_before": round(before, 4),
            "share_throttled": round(_share(stage, (told or slowed), freed), 4),
            "share_of_speed": round(MATCH, 4),
            "share_after": round(_share(stage, again, again + WINDOW_S), 4) if again else None,
        },
        bars=[
            Bar(
                "throttled GPU: share of requests matches its speed after, s",
                after(matched, slowed),
                "<=",
                60,
            )
        ],
    )
