"""Half of the engines die at once: the fallback role serves until enough are back."""

from __future__ import annotations

import asyncio
import time

from bench.control.result import Result, after
from bench.control.stage import Setup, Stage
from bench.report import Bar

LOST = ("engine-0", "engine-1", "engine-2")
QUORUM = 0.6


def setup(quick: bool) -> Setup:
    """Three of six are too few."""
    hold = "2s" if quick else "5s"
    return Setup(fallback=True, config={"breaker": {"quorum": QUORUM, "quorum_hold": hold}})


async def run(stage: Stage, quick: bool) -> Result:
    """Kill, wait, start again."""
    observer = stage.observer
    await asyncio.sleep(1 if quick else 10)
    lost = time.monotonic()
    for name in LOST:
        stage.engines[name].kill()
    fell = await stage.until(lambda: observer.last.model.get("fallback"), 20)
    for name in LOST:
        out = await stage.until(lambda: stage.out_of_rotation(name, lost), 10)  # noqa: B023  (awaited at once)
        stage.blow(name, lost, out)
    await asyncio.sleep(1.5 if quick else 20)
    again = time.monotonic()
    for name in LOST:
        stage.engines[name].restart()
    back = await stage.until(lambda: not observer.last.model.get("fallback"), 60)
    await asyncio.sleep(1 if quick else 10)
    marked = [record for record in stage.records() if "fallback-model" in record.degraded]
    first = min((record.first for record in marked if record.first), default=None)
    return Result(
        detected_s=after(fell, lost),
        acted_s=after(first, lost),
        recovered_s=after(back, again),
        figures={
            "answered_by_fallback": sum(record.ok for record in marked),
            "fallback_after_the_return": sum(back is not None and one.sent > back + 0.5 for one in marked),
        },
        bars=[
            Bar("half the fleet lost: fallback answers, s", after(first, lost), "<=", 2.0),
            Bar(
                "half the fleet lost: fallback answers after the return",
                sum(back is not None and one.sent > back + 0.5 for one in marked),
                "==",
                0,
            ),
        ],
    )
