"""The GPUs' exporters take connections and answer no more: engines go on, and nothing is invented."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from bench.control.result import Result, after
from bench.control.stage import Setup, Stage
from bench.report import Bar

SETUP = Setup(exporters=True)
OLD_MS = 3000


async def run(stage: Stage, quick: bool) -> Result:
    """Silence, then speech."""
    names = set(stage.fleet.active)

    async def cards() -> list[dict[str, Any]]:
        rows = await stage.admin("GET", "/api/backends")
        return [row for row in rows if row["id"] in names]

    async def until(holds: Any, seconds: float) -> float | None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if all(holds(row) for row in await cards()):
                return time.monotonic()
            await asyncio.sleep(0.1)
        return None

    await until(lambda row: "utilization" in row["measured"], 10)
    stage.exporter.silent |= names
    silenced = time.monotonic()
    told = await until(lambda row: "cards" in row["notes"], 20)
    await asyncio.sleep(2 if quick else 30)
    rows = await cards()
    ages = [row["measured"]["utilization"]["age_ms"] for row in rows if "utilization" in row["measured"]]
    out = sum(row["state"] != "ready" for row in rows)
    stage.exporter.silent.clear()
    spoke = time.monotonic()
    again = await until(lambda row: row["measured"].get("utilization", {}).get("age_ms", OLD_MS) < 1500, 30)
    await asyncio.sleep(1)
    left = sum(not look.ready(name) for look in stage.observer.looks for name in names)
    return Result(
        detected_s=after(told, silenced),
        acted_s=None,
        recovered_s=after(again, spoke),
        figures={"age_told_ms": min(ages, default=None)},
        bars=[
            Bar("exporter silent: backends taken out", float(out + left), "==", 0),
            Bar("exporter silent: told, s", after(told, silenced), "<=", 5),
            Bar("exporter silent: least age told of a value, ms", min(ages, default=None), ">=", OLD_MS),
        ],
    )
