"""Redis dies and comes back empty: requests flow on by what is known, and nobody is refused."""

from __future__ import annotations

import asyncio
import time

from bench.control.result import Result, after
from bench.control.stage import Setup, Stage
from bench.report import Bar

SETUP = Setup()


async def run(stage: Stage, quick: bool) -> Result:
    """Kill, wait, start again."""
    gone_s = 5 if quick else 60

    async def gateway(name: str) -> float:
        return (await asyncio.to_thread(stage.gateway.metrics)).get(name, 0.0)

    async def until(name: str, value: float, seconds: float) -> float | None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if await gateway(name) == value:
                return time.monotonic()
            await asyncio.sleep(0.05)
        return None

    await asyncio.sleep(1 if quick else 10)
    killed = time.monotonic()
    stage.redis.kill()
    noticed = await until("tokenweir_redis_up", 0, 10)
    stale = await until("tokenweir_snapshot_stale", 1, 10)
    await asyncio.sleep(max(0.0, killed + gone_s - time.monotonic()))
    back = time.monotonic()
    stage.redis.restart()
    fresh = await until("tokenweir_snapshot_stale", 0, 30)
    await asyncio.sleep(2)
    during = [record for record in stage.records() if killed <= record.sent < back]
    refused = sum(record.refused for record in stage.records())
    return Result(
        detected_s=after(noticed, killed),
        acted_s=after(stale, killed),
        recovered_s=after(fresh, back),
        figures={
            "gone_s": round(back - killed, 1),
            "answered_meanwhile": sum(record.ok for record in during),
        },
        bars=[
            Bar("Redis gone: requests refused", float(refused), "==", 0),
            Bar("Redis gone: fresh decisions after its return, s", after(fresh, back), "<=", 5),
        ],
    )
