"""Two XID errors: one that a restart mends, and one that no restart mends."""

from __future__ import annotations

import asyncio

from bench.control.result import Result, after
from bench.control.stage import Setup, Stage
from bench.report import Bar

MENDED, LOST = "engine-1", "engine-2"
SETUP = Setup(actuators=True, exporters=True)


async def run(stage: Stage, quick: bool) -> Result:
    """XID 43 on one, XID 79 on another, then the operator brings that one back."""
    await asyncio.sleep(1 if quick else 10)
    at = await stage.fault(MENDED, kind="xid", code=43)
    restarted = await stage.until(lambda: stage.orders.first("restart", MENDED, at), 10)
    out = await stage.until(lambda: stage.out_of_rotation(MENDED, at), 5)
    stage.blow(MENDED, at, out)
    back = await stage.until(lambda: restarted and stage.observer.last.ready(MENDED), 40)
    fell = await stage.fault(LOST, kind="xid", code=79)
    gone = await stage.until(lambda: stage.out_of_rotation(LOST, fell), 10)
    stage.blow(LOST, fell, gone)
    held = await stage.until(lambda: not stage.observer.last.ready(LOST), 10)
    await asyncio.sleep(1.5 if quick else 20)
    alerts = [one for one in await stage.admin("GET", "/api/alerts") if one["subject"] == LOST]
    ordered = stage.orders.first("restart", LOST, fell)
    mended = await stage.fault(LOST, kind="none")
    await stage.admin("POST", f"/api/backends/{LOST}/return")
    returned = await stage.until(lambda: stage.observer.last.ready(LOST), 20)
    await asyncio.sleep(1)
    pages = sum(one["page"] and one["kind"] == "xid" for one in alerts)
    return Result(
        detected_s=after(held, fell),
        acted_s=after(restarted, at),
        recovered_s=after(back, at),
        figures={
            "xid_79_out_s": after(gone, fell),
            "brought_back_s": after(returned, mended),
            "pages": pages,
        },
        bars=[
            Bar("XID 43: restart ordered, s", after(restarted, at), "<=", 2.0),
            Bar("XID 43: back in rotation, s", after(back, at), "<=", 30),
            Bar("XID 79: GPU taken out, s", after(held, fell), "<=", 2.0),
            Bar("XID 79: pages", pages, "==", 1),
            Bar("XID 79: restarts ordered", float(ordered is not None), "==", 0),
        ],
    )
