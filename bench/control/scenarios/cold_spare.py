"""The load grows: the stopped spare is started, warmed and ramped, and nobody is slowed down by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from bench.control.client import Record
from bench.control.fleet import SPARE
from bench.control.result import Result, after, quantile
from bench.control.stage import Setup, Stage
from bench.report import Bar

START, PER_MINUTE = 0.2, 0.6
"""Faster than the defaults, so that growth shows within the bench."""
HOLD_S = 45
QUICK_HOLD_S = 15
"""How long the load must stay before a spare is called: so long the fleet is looked at without one."""
LOOKED_AT_S = 60
QUICK_LOOKED_AT_S = 15
"""How long the fleet is looked at with the spare."""
MARGIN_S = 1.0
"""Around a request, in which the machine must have had room for it."""
LEAST = 200
"""Requests from which a p99 is told."""


def setup(quick: bool) -> Setup:
    """A fleet that is 80 % full from the beginning."""
    hold = QUICK_HOLD_S if quick else HOLD_S
    return Setup(
        actuators=True,
        spare=True,
        rate=20.0,
        level=0.8,
        config={
            "ramp": {"start": START, "per_minute": PER_MINUTE, "hurry": 1.0},
            "standby": {"hold": f"{hold}s"},
        },
    )


async def run(stage: Stage, quick: bool) -> Result:
    """Watch the fleet without the spare, see the spare come, and watch it with the spare."""
    observer, tenants = stage.observer, stage.tenants
    began_at = observer.looks[0].at
    due = began_at + (QUICK_HOLD_S if quick else HOLD_S)
    ordered = await stage.until(lambda: stage.orders.first("start", SPARE, 0), 90)
    if ordered is None:
        raise RuntimeError(f"no spare was promoted: {observer.last.model}")
    ready = await stage.until(lambda: observer.last.ready(SPARE), 40)
    began = time.monotonic()
    await asyncio.sleep(QUICK_LOOKED_AT_S if quick else LOOKED_AT_S)
    end = time.monotonic()
    records = stage.records()
    admitted = [
        (look.at, float(look.backend(SPARE)["admit"]))
        for look in observer.looks
        if look.at >= began and look.ready(SPARE)
    ]
    allowed = [(at, START + PER_MINUTE * (at - began + 1) / 60) for at, _ in admitted]
    over_share = sum(share > most for (_, share), (_, most) in zip(admitted, allowed, strict=True))
    served = sum(record.backend == SPARE and record.sent >= began for record in records)
    share = sum(share for _, share in admitted) / max(len(admitted), 1)
    fair = share / (len(tenants.use) + share) * sum(record.sent >= began for record in records)
    bound = fair + 3 * fair**0.5 + 1
    before = [one for one in records if one.sent < ordered]
    during = [one for one in records if began <= one.sent < end]
    calm, grown = _first_tokens(stage, before), _first_tokens(stage, during)
    p99 = quantile(calm, 0.99), quantile(grown, 0.99)
    enough = min(len(calm), len(grown)) >= LEAST
    ratio = p99[1] / p99[0] if enough and p99[0] and p99[1] else None
    first = min((one.ended for one in records if one.backend == SPARE), default=None)
    return Result(
        detected_s=after(ordered, due),
        acted_s=after(ready, due),
        recovered_s=after(first, due),
        figures={
            "share_at_the_end": admitted[-1][1] if admitted else None,
            "served_by_spare": served,
            "served_by_spare_at_most": round(bound, 1),
            "ttft_p99_before_s": p99[0],
            "ttft_p99_during_s": p99[1],
            "ttft_p50_before_s": quantile(calm, 0.5),
            "ttft_p50_during_s": quantile(grown, 0.5),
            "ttft_left_out": len(before) + len(during) - len(calm) - len(grown),
        },
        bars=[
            Bar("cold spare: snapshots in which its share was over the ramp", over_share, "==", 0),
            Bar(
                "cold spare: requests that it served, of those that the ramp allows", served / bound, "<=", 1
            ),
        ],
        typical=[Bar("cold spare: p99 TTFT of the fleet, times that before", ratio, "<=", 1.10)],
    )


def _first_tokens(stage: Stage, records: Sequence[Record]) -> list[float]:
    """Times to first token of those requests for which others of the machine left room: the two stretches are
    a minute apart, and on a shared machine one of them would be the busier."""
    return [
        one.first - one.sent
        for one in records
        if one.first is not None and stage.neighbours.left_room(one.sent - MARGIN_S, one.first + MARGIN_S)
    ]
