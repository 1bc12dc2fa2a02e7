"""The tick: campaign for the lead, and while leading decide, carry out, publish. What the decisions remember
is stored with them, so that the next leader goes on from there."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio as aioredis
import structlog

from sidecar.clock import monotonic_ms
from sidecar.control.fleet import Fleet
from sidecar.control.loop import ControlLoop
from sidecar.leader import Leader, NotLeaderError
from sidecar.operations import Operations
from sidecar.publish import Decision, Publisher
from sidecar.queue_limits import queue_limits
from sidecar.redis_access import RedisError, text_of
from sidecar.redis_state import RedisState
from tokenweir.config import Config
from tokenweir.contract import names

log = structlog.get_logger(__name__)

CAMPAIGN_MS: Final = 250
"""How often a follower asks for the lead."""
COALESCE_MS: Final = 20
"""Changes of state that come together are published together."""
PART: Final = "publish"
"""Of the sidecar, in what is known of Redis."""
MEMORY_EVERY_MS: Final = 2000
"""How often the decisions' memory is stored when nothing changed; ramps grow all the time."""
FOLLOW_MS: Final = 1000
"""How often one that does not lead reads what the leader remembers."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the tick asks of the control plane."""

    config: Callable[[], Config]
    warming_up: Callable[[], bool]
    """Whether backends are still to be looked at for the first time since the start: a snapshot that calls
    them all "starting" would take them out of rotation."""
    left: Callable[[], None]
    """Backends have left the fleet."""


class Ticker:
    """The ticks of one sidecar."""

    def __init__(
        self,
        client: aioredis.Redis,
        redis: RedisState,
        leader: Leader,
        *,
        fleet: Fleet,
        loop: ControlLoop,
        operations: Operations,
        publisher: Publisher,
        surroundings: Surroundings,
    ) -> None:
        self._client = client
        self._redis = redis
        self._leader = leader
        self._fleet = fleet
        self._loop = loop
        self._operations = operations
        self._publisher = publisher
        self._around = surroundings
        self._memory_fence = 0
        """The term of leadership for which the decisions' memory was read."""
        self._memory_at = float("-inf")
        self._memory_due = True
        self._followed_at = float("-inf")
        self._refused = ""
        """Why the decisions' memory was last refused."""
        self._change = asyncio.Event()

    def soon(self) -> None:
        """Have the next tick at once, and what the decisions remember stored with it."""
        self._memory_due = True
        self._change.set()

    async def run(self) -> None:
        """Tick for ever."""
        while True:
            try:
                # However rarely backends are looked at, publishing is what prolongs the lease.
                interval = min(self._around.config().telemetry.interval, names.SNAPSHOT_EVERY_MS)
                if not self._leader.leading:
                    interval = min(interval, CAMPAIGN_MS)
                await asyncio.wait_for(self._change.wait(), interval / 1000)
                await asyncio.sleep(COALESCE_MS / 1000)
            except TimeoutError:
                pass
            self._change.clear()
            try:
                await self._tick()
            except NotLeaderError:
                self.soon()
                await asyncio.sleep(COALESCE_MS / 1000)
            except (RedisError, OSError) as error:
                self._redis.failed(PART, error)
            except Exception:
                log.exception("publish_failed")

    async def _tick(self) -> None:
        config = self._around.config()
        leads = self._leader.leading or await self._leader.campaign()
        if leads and self._around.warming_up():
            await self._leader.campaign()
            return
        if self._fleet.sweep(config.limits.drain):
            self._around.left()
        if not leads:
            await self._follow()
            self._loop.step(config, False, monotonic_ms())
            self._redis.answered(PART)
            return
        if self._leader.fence != self._memory_fence:
            await self._remembered(self._loop.restore)
            self._memory_fence = self._leader.fence
        now = monotonic_ms()
        changed, orders = self._loop.step(config, True, now)
        self._operations.carry_out(orders)
        memory = await self._memory(changed, now)
        decision = Decision(
            config.served_policy,
            config.shadow_policy,
            self._loop.thresholds(config, now),
            queue_limits(config),
            config.burst.max_tokens,
            self._loop.published(),
            memory,
        )
        await self._publisher.publish(self._fleet.decide(monotonic_ms()), decision)
        if memory is not None:
            self._memory_at, self._memory_due = now, False
        self._redis.answered(PART)

    async def _follow(self) -> None:
        """Without the lead: show what the leader decided."""
        now = monotonic_ms()
        if now - self._followed_at >= FOLLOW_MS:
            self._followed_at = now
            await self._remembered(self._loop.follow)

    async def _remembered(self, take: Callable[[Any, float, float], None]) -> None:
        """Have what another leader last remembered taken: the state, monotonic now, its age in ms."""
        stored = await text_of(self._client, names.CONTROL)
        if stored is None:
            return
        redis_ms = await self._redis_ms()
        try:
            state = json.loads(stored)
            if state["schema"] != names.SCHEMA:
                raise ValueError(f"schema {state['schema']}")
            if state["sidecar"] != self._leader.id:
                take(state, monotonic_ms(), max(0.0, redis_ms - float(state["time_ms"])))
            self._refused = ""
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            reason = f"{type(error).__name__}: {error}"[:200]
            if reason != self._refused:
                log.error("control_memory_refused", reason=reason)
            self._refused = reason

    async def _memory(self, changed: bool, now: float) -> str | None:
        """The decisions' memory as it is to be stored; None while what is stored will do."""
        self._memory_due = self._memory_due or changed
        if not self._memory_due and now - self._memory_at < MEMORY_EVERY_MS:
            return None
        head = {"schema": names.SCHEMA, "sidecar": self._leader.id, "time_ms": await self._redis_ms()}
        return json.dumps({**head, **self._loop.dump(now)}, separators=(",", ":"))

    async def _redis_ms(self) -> int:
        """The time by Redis: hosts' own clocks may differ, and jump."""
        seconds, microseconds = await self._client.time()
        return int(seconds) * 1000 + int(microseconds) // 1000
