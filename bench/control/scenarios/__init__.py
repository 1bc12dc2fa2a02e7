"""The scripted scenarios, one file each: `SETUP` (or `setup(quick)`), and `run(stage, quick)`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from bench.control.result import Result
from bench.control.scenarios import (
    burst,
    cold_spare,
    exporter_silent,
    fleet_loss,
    leader_killed,
    memory_creep,
    out_of_memory,
    redis_gone,
    throttled,
    xid,
)
from bench.control.stage import Setup, Stage


@dataclass(frozen=True)
class Scenario:
    """One of them."""

    name: str
    setup: Setup | Callable[[bool], Setup]
    """What its stage is made of; of some it depends on whether the bench is quick."""
    run: Callable[[Stage, bool], Awaitable[Result]]


SCENARIOS = (
    Scenario("memory creep to 90/95 %", memory_creep.setup, memory_creep.run),
    Scenario("out-of-memory crash", out_of_memory.SETUP, out_of_memory.run),
    Scenario("half the fleet lost", fleet_loss.setup, fleet_loss.run),
    Scenario("5x burst", burst.setup, burst.run),
    Scenario("cold spare", cold_spare.setup, cold_spare.run),
    Scenario("throttled GPU", throttled.SETUP, throttled.run),
    Scenario("XID", xid.SETUP, xid.run),
    Scenario("exporter silent", exporter_silent.SETUP, exporter_silent.run),
    Scenario("Redis gone", redis_gone.SETUP, redis_gone.run),
    Scenario("leader killed", leader_killed.SETUP, leader_killed.run),
)
