"""Overload on the emulated fleet: one run of the same arrivals under one configuration."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field

from bench.buffer.client import Answer, ask
from bench.buffer.fleet import Fleet, authorization
from bench.buffer.traffic import FLOOD, Request, requests


@dataclass(frozen=True)
class Load:
    """What is offered. Rates are requests per second."""

    seconds: float
    others: float
    flood: float


FULL, QUICK = Load(60, 8.5, 12.5), Load(12, 8.5, 14.5)
"""Half again as much as the fleet serves, which is some fourteen requests a second."""


@dataclass
class Sent:
    """One request and its answer."""

    request: Request
    answer: Answer

    @property
    def served(self) -> bool:
        """Whether an engine answered it."""
        return self.answer.status == 200

    @property
    def flooding(self) -> bool:
        """Whether it is of the key that floods."""
        return self.request.key == FLOOD

    @property
    def wait(self) -> float:
        """Time in the queue, s; of one that was refused, until then."""
        if self.answer.wait_ms is not None and self.served:
            return self.answer.wait_ms / 1000
        return self.answer.latency

    @property
    def placed(self) -> float:
        """When it left the queue, CLOCK_MONOTONIC in s."""
        return self.answer.sent + self.wait


@dataclass
class Run:
    """One run. Times are CLOCK_MONOTONIC in s."""

    began: float
    ended: float
    """When the last request was sent: from then on waits are another matter."""
    sent: list[Sent] = field(default_factory=list)


async def run(fleet: Fleet, load: Load, seed: int, name: str) -> Run:
    """Send one run's requests when they are due, and wait for all to end."""
    done = Run(began=time.monotonic(), ended=0.0)

    async def one(request: Request) -> None:
        headers = {
            **authorization(request.key),
            "X-Priority": request.priority,
            "X-Request-Id": request.id,
            "X-Emulator-Output-Tokens": str(request.output),
            "X-Accept-Early-Hints": "1",
        }
        done.sent.append(Sent(request, await ask(fleet.gateway.port, request.body, headers)))

    async with asyncio.TaskGroup() as group:
        for request in requests(load.seconds, load.others, load.flood, seed, name):
            await asyncio.sleep(max(0, done.began + request.at - time.monotonic()))
            group.create_task(one(request))
        done.ended = time.monotonic()
    return done
