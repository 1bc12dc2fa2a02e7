"""What a sidecar reads from Redis and tells the other sidecars, leading or not: the gateways' leases, the
changes of the admin API, its own heartbeat."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import redis.asyncio as aioredis
import structlog
from redis.exceptions import ResponseError

from sidecar.clock import monotonic_ms, wall_ms
from sidecar.control.gateways import MOST_GATEWAYS, Gateways
from sidecar.leader import Leader
from sidecar.redis_access import RedisError, text_of
from sidecar.redis_state import RedisState
from sidecar.store import Store
from tokenweir.contract import names

log = structlog.get_logger(__name__)

FOLLOW_MS: Final = 250
"""How often leases and the other sidecars' changes are read."""
PART: Final = "follow"
"""Of the sidecar, in what is known of Redis."""
HEARTBEAT_MS: Final = 1000
HEARTBEAT_LIFE_MS: Final = 3000
MEASURE_MS: Final = 5000


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that Redis uses, and may use (0: no limit)."""

    used: int
    limit: int


class Exchange:
    """One sidecar's exchange with the others."""

    def __init__(
        self,
        client: aioredis.Redis,
        redis: RedisState,
        leader: Leader,
        gateways: Gateways,
        store: Store,
        *,
        changed: Callable[[], None],
        leases_read: Callable[[], None],
    ) -> None:
        self._client = client
        self._redis = redis
        self._leader = leader
        self._gateways = gateways
        self._store = store
        self._changed = changed
        self._leases_read = leases_read
        self._seen: bytes | None = None
        self._due = True
        self._heartbeat_at = self._measured_at = float("-inf")
        self._refused = False
        self.memory: Memory | None = None
        """As Redis last told; None where this user may not ask."""
        self.waiting_batches = 0
        """Batches of completion records in the stream."""

    def tell(self) -> None:
        """The store was changed here: the others are to know."""
        self._due = True

    async def run(self) -> None:
        """Exchange for ever."""
        while True:
            try:
                await self._step()
                self._redis.answered(PART)
            except (RedisError, OSError) as error:
                self._redis.failed(PART, error)
            except Exception:
                log.exception("follow_failed")
            await asyncio.sleep(FOLLOW_MS / 1000)

    async def _step(self) -> None:
        """Read the leases, exchange changes, show that this sidecar lives. Raises RedisError."""
        await self._read_leases()
        await self._exchange_changes()
        now = monotonic_ms()
        if now - self._heartbeat_at >= HEARTBEAT_MS:
            await self._client.set(names.SIDECARS + self._leader.id, str(wall_ms()), px=HEARTBEAT_LIFE_MS)
            self._heartbeat_at = now
        if now - self._measured_at >= MEASURE_MS:
            self._measured_at = now
            await self._measure()

    async def _measure(self) -> None:
        """How full Redis is: decisions and leases have no room in a full one."""
        try:
            memory = await self._client.info("memory")
            self.waiting_batches = await self._client.xlen(names.COMPLETIONS)
        except ResponseError as error:
            self.memory = None
            if not self._refused:
                log.warning("redis_memory_not_told", reason=str(error))
            self._refused = True
            return
        self.memory = Memory(int(memory.get("used_memory", 0)), int(memory.get("maxmemory", 0)))

    async def _read_leases(self) -> None:
        # The list's scores are the gateways' own clocks, which may be wrong: whose lease lives, Redis knows.
        try:
            ids = await self._client.zrangebyscore(names.GATEWAYS, "-inf", "+inf")
            keys = [names.GATEWAY + _text(gateway) for gateway in ids[-MOST_GATEWAYS:]]
            texts = await self._client.mget(keys) if keys else []
        except (RedisError, OSError):
            self._gateways.lost()
            raise
        self._gateways.update([text for text in texts if text is not None])
        self._leases_read()

    async def _exchange_changes(self) -> None:
        stored: Any = await text_of(self._client, names.CHANGES)
        if stored == self._seen and not self._due:
            return
        changed, lacking = self._store.merge(stored)
        if lacking or self._due:
            text = self._store.dump().encode()
            await self._client.set(names.CHANGES, text)
            stored = text
        self._seen, self._due = stored, False
        if changed:
            log.info("changes_taken_over")
            self._changed()


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
