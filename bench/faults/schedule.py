"""When what is hurt: one round of all faults, so that every kind meets traffic and some meet each other."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.faults.stage import Stage


@dataclass(frozen=True)
class Blow:
    """One fault at a time of the round, in s."""

    at: float
    strike: Callable[[Stage], Awaitable[None]]


@dataclass(frozen=True)
class Round:
    """The faults of one round and how long it lasts, in s."""

    seconds: float
    blows: tuple[Blow, ...]


FULL = Round(
    70,
    (
        Blow(2, lambda stage: stage.kill_worker()),
        Blow(4, lambda stage: stage.reload()),
        Blow(6, lambda stage: stage.freeze_redis(4)),
        Blow(8, lambda stage: stage.kill_worker()),
        Blow(12, lambda stage: stage.restart_sidecar(5)),
        Blow(14, lambda stage: stage.reload()),
        Blow(20, lambda stage: stage.crash_engine(4)),
        Blow(27, lambda stage: stage.freeze_engine(8)),
        Blow(37, lambda stage: stage.fail_engine(5)),
        Blow(44, lambda stage: stage.restart_redis(3)),
        Blow(46, lambda stage: stage.crash_engine(3)),
        Blow(51, lambda stage: stage.freeze_sidecar(12)),
        Blow(53, lambda stage: stage.freeze_engine(8)),
        Blow(54, lambda stage: stage.kill_worker()),
        Blow(55, lambda stage: stage.reload()),
        Blow(65, lambda stage: stage.kill_worker()),
    ),
)
QUICK = Round(
    30,
    (
        Blow(1, lambda stage: stage.kill_worker()),
        Blow(2, lambda stage: stage.reload()),
        Blow(3, lambda stage: stage.freeze_redis(2)),
        Blow(4, lambda stage: stage.restart_sidecar(3)),
        Blow(9, lambda stage: stage.crash_engine(2)),
        Blow(12, lambda stage: stage.freeze_engine(7)),
        Blow(20, lambda stage: stage.fail_engine(4)),
        Blow(24, lambda stage: stage.restart_redis(1)),
        Blow(26, lambda stage: stage.kill_worker()),
        Blow(27, lambda stage: stage.reload()),
    ),
)


async def strike(plan: Round, stage: Stage) -> None:
    """Carry out one round; return when every fault of it has ended."""

    async def later(blow: Blow) -> None:
        await asyncio.sleep(blow.at)
        await blow.strike(stage)

    async with asyncio.TaskGroup() as group:
        for blow in plan.blows:
            group.create_task(later(blow))
        group.create_task(asyncio.sleep(plan.seconds))
