"""How much of the machine others use while a scenario plays.

Engines, clients and what is measured share the processors with whatever else runs there. Where that leaves
them too little, they are late, and no figure of latency says anything about the product.
"""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

LOOK_S: Final = 0.5
NEEDED: Final = 1.5
"""Processors that the bench must find free: it uses some two thirds of one, in bursts, by a dozen processes.
With one free, half of all times to first token were a quarter longer."""
TICKS: Final = os.sysconf("SC_CLK_TCK")


@dataclass
class Neighbours:
    """Looks twice a second at what others use."""

    shares: list[tuple[float, float]] = field(default_factory=list)
    """(CLOCK_MONOTONIC s, processors that others have used since the look before)."""

    async def run(self) -> None:
        """Look until cancelled."""
        cores = len(os.sched_getaffinity(0))
        at, busy, own = time.monotonic(), _busy(), _own()
        while True:
            await asyncio.sleep(LOOK_S)
            now, busy_now, own_now = time.monotonic(), _busy(), _own()
            # What has ended meanwhile took its time with it; a restarted engine is not the others'.
            used = sum(ticks - own.get(process, 0) for process, ticks in own_now.items())
            others = (busy_now - busy - used) / TICKS / (now - at)
            self.shares.append((now, min(max(others, 0.0), cores)))
            at, busy, own = now, busy_now, own_now

    def left_room(self, since: float, until: float) -> bool:
        """Whether they left the bench what it needs, all the time from `since` to `until`."""
        most = len(os.sched_getaffinity(0)) - NEEDED
        return all(share <= most for at, share in self.shares if at >= since and at - LOOK_S <= until)


def _busy() -> int:
    """Ticks that all processors were busy, or not there (another machine's on the same host), since boot.
    Without those of who is nicer than the bench: he gives way."""
    values = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _, _, irq, soft_irq, steal, *_ = values
    return user + (nice if os.nice(0) > 0 else 0) + system + irq + soft_irq + steal


def _own() -> dict[int, int]:
    """Ticks of this process and all below it, by process."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for folder in Path("/proc").iterdir():
        if not folder.name.isdigit():
            continue
        try:
            words = (folder / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        process = int(folder.name)
        parents[process], ticks[process] = int(words[1]), int(words[11]) + int(words[12])
    found = {os.getpid()}
    grown = True
    while grown:
        below = {process for process, parent in parents.items() if parent in found} - found
        found |= below
        grown = bool(below)
    return {process: ticks[process] for process in found if process in ticks}
