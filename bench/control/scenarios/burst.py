"""Five times as many requests as usual on a loaded fleet: answers are kept short, then no more."""

from __future__ import annotations

import asyncio
import time

from bench.control.result import Result, after
from bench.control.stage import Setup, Stage
from bench.report import Bar

USUAL = 6.0
TIMES = 5
MOST = 16


def setup(quick: bool) -> Setup:
    """A fleet that is 75 % full."""
    config = {"burst": {"max_tokens": MOST, "stay": "3s" if quick else "10s"}}
    return Setup(rate=USUAL, level=0.75, output=(24, 40), config=config)


async def run(stage: Stage, quick: bool) -> Result:
    """Usual rate until it is known as usual, the burst, the usual rate again."""
    await asyncio.sleep(12 if quick else 40)
    stage.traffic.rate = TIMES * USUAL
    jumped = time.monotonic()
    on = await stage.until(lambda: stage.observer.last.model.get("burst"), 10)
    await asyncio.sleep(2 if quick else 15)
    stage.traffic.rate = USUAL
    ended = time.monotonic()
    off = await stage.until(lambda: not stage.observer.last.model.get("burst"), 40)
    await asyncio.sleep(1)
    marked = [record for record in stage.records() if "burst" in record.degraded]
    first = min((record.sent for record in marked), default=None)
    longest = max((record.tokens or 0 for record in marked), default=None)
    return Result(
        detected_s=after(on, jumped),
        acted_s=after(first, jumped),
        recovered_s=after(off, ended),
        figures={"shortened": len(marked), "longest_shortened_answer": longest},
        bars=[
            Bar("5x burst: first request that is degraded, s", after(first, jumped), "<=", 1.0),
            Bar("5x burst: longest answer in burst mode, tokens", longest, "<=", MOST),
        ],
    )
