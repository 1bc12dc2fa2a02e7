"""What a sidecar reads from Redis and tells the other sidecars, leading or not: the gateways' leases, the
changes of the admin API, its own heartbeat."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import redis.asyncio as aioredis
import structlog

from sidecar.clock import monotonic_ms, wall_ms
from sidecar.control.gateways import MOST_GATEWAYS, Gateways
from sidecar.leader import Leader
from sidecar.store import Store
from tokenweir.contract import names

log = structlog.get_logger(__name__)

HEARTBEAT_MS: Final = 1000
HEARTBEAT_LIFE_MS: Final = 3000
LEASE_WINDOW_MS: Final = 60_000
"""How far the wall clocks of gateways and sidecars may differ; the leases expire by Redis' own clock."""
FORGET_GATEWAYS_MS: Final = 24 * 3_600_000
SWEEP_MS: Final = 600_000


class Exchange:
    """One sidecar's exchange with the others. `step` raises RedisError when Redis is away."""

    def __init__(
        self,
        client: aioredis.Redis,
        leader: Leader,
        gateways: Gateways,
        store: Store,
        changed: Callable[[], None],
    ) -> None:
        self._client = client
        self._leader = leader
        self._gateways = gateways
        self._store = store
        self._changed = changed
        self._seen: bytes | None = None
        self._due = True
        self._heartbeat_at = self._swept_at = float("-inf")

    def tell(self) -> None:
        """The store was changed here: the others are to know."""
        self._due = True

    async def step(self) -> None:
        """Read the leases, exchange changes, show that this sidecar lives."""
        await self._read_leases()
        await self._exchange_changes()
        now = monotonic_ms()
        if now - self._heartbeat_at >= HEARTBEAT_MS:
            self._heartbeat_at = now
            await self._client.set(names.SIDECARS + self._leader.id, str(wall_ms()), px=HEARTBEAT_LIFE_MS)
        if now - self._swept_at >= SWEEP_MS and self._leader.leading:
            self._swept_at = now
            await self._client.zremrangebyscore(names.GATEWAYS, 0, wall_ms() - FORGET_GATEWAYS_MS)

    async def _read_leases(self) -> None:
        ids = await self._client.zrangebyscore(
            names.GATEWAYS, wall_ms() - LEASE_WINDOW_MS, "+inf", start=0, num=MOST_GATEWAYS
        )
        keys = [names.GATEWAY + _text(gateway) for gateway in ids]
        texts = await self._client.mget(keys) if keys else []
        self._gateways.update([text for text in texts if text is not None])

    async def _exchange_changes(self) -> None:
        stored: Any = await self._client.get(names.CHANGES)
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
