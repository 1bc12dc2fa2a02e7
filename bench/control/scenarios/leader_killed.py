"""The leading sidecar is killed while a GPU is taken out: another one leads, and remembers."""

from __future__ import annotations

import asyncio
import time

from bench.control.result import Result, after
from bench.control.stage import Setup, Stage
from bench.report import Bar

LOST = "engine-2"
LEASE_S = 2.0
SETUP = Setup(exporters=True, sidecars=2)


async def run(stage: Stage, quick: bool) -> Result:
    """XID 79 on one engine, then the leader dies, and later comes back."""
    observer = stage.observer
    await asyncio.sleep(1 if quick else 10)
    fell = await stage.fault(LOST, kind="xid", code=79)
    gone = await stage.until(lambda: stage.out_of_rotation(LOST, fell), 10)
    stage.blow(LOST, fell, gone)
    await stage.until(lambda: not observer.last.ready(LOST), 10)
    # The card is well again, but nobody has said so: who takes over must not believe the last look alone.
    await stage.fault(LOST, kind="none")
    await asyncio.sleep(2.5)
    leading = [(await stage.admin("GET", "/api/fleet", number))["leading"] for number in range(2)]
    leader = stage.sidecars[leading.index(True)]
    fence = observer.last.snapshot["fence"]
    killed = time.monotonic()
    leader.kill()
    led = await stage.until(lambda: observer.last.snapshot["fence"] > fence, 20)
    await asyncio.sleep(1.5 if quick else 20)
    forgotten = sum(look.ready(LOST) for look in observer.looks if look.at > killed)
    leader.restart()
    other = leading.index(False)
    await stage.admin("POST", f"/api/backends/{LOST}/return", other)
    returned = time.monotonic()
    back = await stage.until(lambda: observer.last.ready(LOST), 20)
    await asyncio.sleep(2)
    stale = (await asyncio.to_thread(stage.gateway.metrics)).get("tokenweir_snapshot_stale")
    return Result(
        detected_s=after(led, killed),
        acted_s=after(led, killed),
        recovered_s=after(back, returned),
        figures={"forgotten": forgotten, "stale_at_the_end": stale},
        bars=[
            Bar("leader killed: another publishes, s", after(led, killed), "<=", LEASE_S + 1),
            Bar("leader killed: snapshots in which the GPU that was taken out was back", forgotten, "==", 0),
        ],
    )
