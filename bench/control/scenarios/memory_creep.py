"""Requests from elsewhere fill the engines' memory to 93 and then to 98 %: level 1, level 2, and back."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from bench.control.observer import Look
from bench.control.result import Result, after
from bench.control.stage import Setup, Stage
from bench.control.tenants import Tenants
from bench.report import Bar

MAX_WAIT_S = 4.0
HOLD_S, QUICK_HOLD_S = 5.0, 2.0
WAIT_SHARE = 0.5
LEVELS = {"refuse_new": 0.90, "drop_low": 0.95}
SHORT_OF = 0.03
"""The use creeps up to this below a threshold, and then goes over it in steps: it trembles by a point, and
while it trembles about the threshold nobody can say since when it has been over it."""
WITHIN_S = 1.0


def setup(quick: bool) -> Setup:
    """The defaults but for a short line from 90 % memory on (engines that preempt have room up to 97 %,
    and there both levels would hold at once); where it must be quick, also shorter times."""
    config: dict[str, Any] = {"queue": {"max_wait": f"{MAX_WAIT_S:.0f}s", "trigger": "memory"}}
    if quick:
        config["breaker"] = {"hold": f"{QUICK_HOLD_S:.0f}s", "stay": "3s"}
    return Setup(config=config, level=0.5)


@dataclass
class Truth:
    """When the conditions were true, looked at from outside twenty times a second."""

    stage: Stage
    hold_s: float
    since: dict[str, float] = field(default_factory=dict)
    """Level -> since when memory use has been over its threshold."""
    met: dict[str, float] = field(default_factory=dict)
    """Level -> when its whole condition first held."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            now, use = time.monotonic(), self.stage.tenants.fleet_use
            waits = self.stage.observer.oldest_wait_s > WAIT_SHARE * MAX_WAIT_S
            for level, threshold in LEVELS.items():
                if use <= threshold:
                    self.since.pop(level, None)
                elif now - self.since.setdefault(level, now) >= self.hold_s and waits:
                    self.met.setdefault(level, now)
            await asyncio.sleep(0.05)


async def _creep(tenants: Tenants, target: float, steps: int) -> None:
    start = tenants.level
    for step in range(1, steps + 1):
        tenants.level = start + (target - start) * step / steps
        await asyncio.sleep(0.5)


def _on(level: str, look: Look) -> bool:
    return bool(look.model.get(level))


async def run(stage: Stage, quick: bool) -> Result:
    """Fill, hold, fill more, hold, empty."""
    tenants, observer = stage.tenants, stage.observer
    await asyncio.sleep(1 if quick else 10)
    began = time.monotonic()
    truth = Truth(stage, QUICK_HOLD_S if quick else HOLD_S)
    watching = asyncio.create_task(truth.run())
    for level, target in (("refuse_new", 0.93), ("drop_low", 0.98)):
        if not quick:
            await _creep(tenants, LEVELS[level] - SHORT_OF, 40)
        await _creep(tenants, target, 3)
        await stage.until(lambda: _on(level, observer.last), 30)  # noqa: B023  (awaited at once)
        await asyncio.sleep(1.5 if quick else 8)
    watching.cancel()
    tenants.level = 0
    emptied = time.monotonic()
    back = await stage.until(lambda: observer.last.model.get("level") == 0, 40)
    await asyncio.sleep(1)
    seen = {level: observer.first(partial(_on, level), began) for level in LEVELS}
    codes = [(record.code, record.known, record.priority, record.ended) for record in stage.records()]
    rejected = [ended for code, _, _, ended in codes if code == "new_sessions_rejected"]
    late = {level: after(seen[level], truth.met.get(level)) for level in LEVELS}
    known = sum(code == "new_sessions_rejected" and known for code, known, _, _ in codes)
    high = sum(code == "low_priority_dropped" and priority == "high" for code, _, priority, _ in codes)
    return Result(
        detected_s=late["refuse_new"],
        acted_s=after(min(rejected, default=None), truth.met.get("refuse_new")),
        recovered_s=after(back, emptied),
        figures={
            "level_2_detected_s": late["drop_low"],
            "new_sessions_rejected": len(rejected),
            "low_priority_dropped": sum(code == "low_priority_dropped" for code, *_ in codes),
            "known_sessions_rejected": known,
            "high_priority_dropped": high,
        },
        bars=[
            Bar("memory creep: level 1 after its condition, s", late["refuse_new"], "<=", WITHIN_S),
            Bar("memory creep: level 2 after its condition, s", late["drop_low"], "<=", WITHIN_S),
            Bar("memory creep: known sessions rejected", known, "==", 0),
            Bar("memory creep: high priority dropped", high, "==", 0),
        ],
    )
