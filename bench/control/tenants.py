"""Load that comes past the gateways: requests sent to the engines directly, which hold their memory at a
level that the scenario sets."""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Mapping

import aiohttp

from bench.control.fleet import CAPACITY, MODEL
from bench.servers.engine import Engine

LOOK_S = 0.1
PART = 0.04
"""Of the capacity, a new request's prompt."""
ENDLESS = CAPACITY // 3
"""Tokens that a request would make if it were let."""


class Tenants:
    """One controller for each engine: it adds a request while memory use is below the level, and ends the
    oldest while it is above."""

    def __init__(self, engines: Mapping[str, Engine], seed: int) -> None:
        self.level = 0.0
        self.only: str | None = None
        """The one engine that is filled; None: all are."""
        self.use: dict[str, float] = {}
        """Engine -> memory use as it says itself."""
        self._engines = engines
        self._source = random.Random(seed)
        self._held: dict[str, deque[tuple[asyncio.Task[None], float]]] = {name: deque() for name in engines}
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def fleet_use(self) -> float:
        """Mean memory use of the engines; all have the same capacity."""
        return sum(self.use.values()) / len(self.use) if self.use else 0.0

    async def start(self) -> None:
        """Begin; all engines are looked at ten times a second."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), timeout=aiohttp.ClientTimeout(total=None)
        )
        self._tasks = [
            asyncio.create_task(self._hold(name, engine)) for name, engine in self._engines.items()
        ]

    async def stop(self) -> None:
        """End all of their requests."""
        held = [task for tasks in self._held.values() for task, _ in tasks]
        for task in (*self._tasks, *held):
            task.cancel()
        await asyncio.gather(*self._tasks, *held, return_exceptions=True)
        await self._http.close()

    async def _hold(self, name: str, engine: Engine) -> None:
        held = self._held[name]
        while True:
            try:
                async with self._http.get(engine.url + "/admin/state") as answer:
                    use = float((await answer.json())["kv_usage"])
            except (aiohttp.ClientError, OSError):
                self.use.pop(name, None)
                await asyncio.sleep(LOOK_S)
                continue
            self.use[name] = use
            while held and held[0][0].done():
                held.popleft()
            level = self.level if self.only in {None, name} else 0.0
            # What was sent may not be computed yet, so it counts as there.
            free = level - max(use, sum(part for _, part in held))
            if free > PART / 4:
                # Of different sizes, so that not all engines lose one at the same moment.
                part = min(free, PART * self._source.uniform(0.5, 1.0))
                held.append((asyncio.create_task(self._occupy(engine, part)), part))
            elif held and use > level + PART / 2:
                held.popleft()[0].cancel()
            await asyncio.sleep(LOOK_S)

    async def _occupy(self, engine: Engine, share: float) -> None:
        # Four bytes are a token of the emulated model; each prompt is its own, so that none is shared.
        tokens = int(share * CAPACITY)
        body = {
            "model": MODEL,
            "prompt": "".join(f"{self._source.randrange(16**4):04x}" for _ in range(tokens)),
            "max_tokens": ENDLESS,
            "ignore_eos": True,
        }
        with contextlib.suppress(aiohttp.ClientError, OSError):  # an engine may die of it
            async with self._http.post(engine.url + "/v1/completions", json=body) as answer:
                await answer.read()
