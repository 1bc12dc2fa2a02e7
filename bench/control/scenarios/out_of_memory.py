"""An engine's memory is exhausted and its process ends: out of rotation, restarted, warmed, back."""

from __future__ import annotations

import asyncio

from bench.control.fleet import FRAGILE
from bench.control.result import Result, after
from bench.control.stage import Setup, Stage
from bench.report import Bar

SETUP = Setup(actuators=True, fragile=True)


async def run(stage: Stage, quick: bool) -> Result:
    """Fill one engine's memory until it dies of it, then leave it alone."""
    await asyncio.sleep(1 if quick else 10)
    engine = stage.engines[FRAGILE]
    stage.tenants.only = FRAGILE
    stage.tenants.level = 1.5
    died = await stage.until(lambda: not engine.running, 40)
    stage.tenants.level = 0
    if died is None:
        raise RuntimeError(f"{FRAGILE} did not die of want of memory")
    out = await stage.until(lambda: stage.out_of_rotation(FRAGILE, died), 10)
    stage.blow(FRAGILE, died, out)
    restarted = await stage.until(lambda: stage.orders.first("restart", FRAGILE, died), 20)
    back = await stage.until(lambda: restarted and stage.observer.last.ready(FRAGILE), 40)
    await asyncio.sleep(2 if quick else 20)
    first = min(
        (r.ended for r in stage.records() if r.backend == FRAGILE and back and r.sent > back), default=None
    )
    return Result(
        detected_s=after(out, died),
        acted_s=after(restarted, died),
        recovered_s=after(back, died),
        figures={
            "first_answer_again_s": after(first, died),
            "restarts": sum(order.action == "restart" for order in stage.orders.received),
        },
        bars=[
            Bar("out-of-memory crash: out of rotation, s", after(out, died), "<=", 1.0),
            Bar("out-of-memory crash: restarts ordered", float(len(stage.orders.received)), "==", 1),
            Bar("out-of-memory crash: back in rotation, s", after(back, died), "<=", 30),
        ],
    )
