"""Puts the decisions into Redis: the snapshot every tick and at once on a change of state, settings and stats
when they change or Redis lost them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import redis.asyncio as aioredis
import structlog

from sidecar.clock import monotonic_ms, wall_ms
from sidecar.leader import Leader
from sidecar.redis_access import text_of
from tokenweir.contract import names
from tokenweir.contract.records import (
    Backend,
    ModelControl,
    Policy,
    PolicySettings,
    QueueLimits,
    Settings,
    Snapshot,
)

log = structlog.get_logger(__name__)

KEPT: Final = 32
"""Published snapshots that the admin API can show."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What the snapshot holds beside the backends."""

    policy: Policy
    shadow: Policy | None
    thresholds: PolicySettings
    queue: QueueLimits
    burst_max_tokens: int = 256
    models: Mapping[str, ModelControl] = field(default_factory=dict)
    memory: str | None = None
    """What the decisions remember, to be stored for whoever takes over; None: as stored already."""


class Publisher:
    """Builds and writes the documents. All methods raise RedisError when Redis is away."""

    def __init__(self, client: aioredis.Redis, leader: Leader) -> None:
        self._client = client
        self._leader = leader
        self._settings: Settings | None = None
        self._settings_due = True
        self._fence = 0
        self.sequence = 0
        self.settings_version = 0
        self.published = 0
        self.published_at: float | None = None
        self.history: deque[str] = deque(maxlen=KEPT)
        """The last published snapshots, as texts."""
        self.stats_missing = False
        """Whether Redis was seen without the stats (it was emptied)."""
        self.predictor = ""
        """Version of the model that is in service, as last seen; empty: none."""

    def set_settings(self, settings: Settings) -> None:
        """Have these settings published with the next snapshot, if they differ."""
        if self._settings is None or _content(settings) != _content(self._settings):
            self._settings = settings
            self._settings_due = True

    @property
    def settings(self) -> Settings | None:
        """The settings as they are, or are to be, published."""
        return self._settings

    async def publish(self, backends: list[Backend], decision: Decision) -> Snapshot:
        """Write a snapshot, and the settings when due. Raises NotLeaderError when the lease is lost."""
        if self._leader.fence != self._fence:
            await self._continue()
        # Counted before it is written: a write whose answer is lost may have happened all the same.
        self.sequence += 1
        snapshot = Snapshot(
            fence=self._leader.fence,
            sequence=self.sequence,
            time_ms=wall_ms(),
            policy=decision.policy,
            shadow=decision.shadow,
            level=max((model.level for model in decision.models.values()), default=0),
            burst=any(model.burst for model in decision.models.values()),
            burst_max_tokens=decision.burst_max_tokens,
            models=dict(decision.models),
            queue=decision.queue,
            thresholds=decision.thresholds,
            predictor_version=self.predictor,
            backends=backends,
        )
        text = snapshot.dump()
        documents = [(names.SNAPSHOT, text)]
        if self._settings_due and self._settings is not None:
            self._settings = self._settings.model_copy(update={"version": await self._next_version()})
            documents.append((names.SETTINGS, self._settings.dump()))
        with_settings = len(documents) > 1
        if decision.memory is not None:
            documents.append((names.CONTROL, decision.memory))
        existing = await self._leader.write(documents)
        self.published += 1
        self.published_at = monotonic_ms()
        self.history.append(text)
        if with_settings and self._settings is not None:
            self._settings_due = False
            self.settings_version = self._settings.version
            log.info("settings_published", version=self.settings_version)
        if existing < 2:
            self._settings_due = self._settings_due or not with_settings
            self.stats_missing = True
        return snapshot

    async def _continue(self) -> None:
        """Go on counting where the leader before stopped."""
        self._fence = self._leader.fence
        stored = _object(await text_of(self._client, names.SNAPSHOT))
        self.sequence = max(self.sequence, _whole(stored.get("sequence")))
        self._settings_due = True

    async def _next_version(self) -> int:
        """A version above the stored one, or the stored one itself where its content is the same."""
        stored = _object(await text_of(self._client, names.SETTINGS))
        version = _whole(stored.get("version"))
        if self._settings is not None and stored and version:
            mine = json.loads(self._settings.model_copy(update={"version": version}).dump())
            if mine == stored:
                return version
        return max(version + 1, self.settings_version + 1, wall_ms())


def _content(settings: Settings) -> dict[str, Any]:
    return settings.model_dump(exclude={"version"})


def _object(text: bytes | str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _whole(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
