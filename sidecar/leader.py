"""Which sidecar publishes: a lease in Redis with a fencing number that never falls.

Taking the lease, and every publication, is one script: between looking whether the lease is held and writing
nothing can happen, not even a process that was stopped for a minute and wakes. The fence is
`max(stored + 1, Redis TIME in ms)`, so it rises even when Redis was emptied.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import redis.asyncio as aioredis
import structlog

from tokenweir.contract import names

log = structlog.get_logger(__name__)

ACQUIRE: Final = """
local held = redis.call('GET', KEYS[1])
if held then
  local fence, owner = string.match(held, '^(%d+):(.*)$')
  if owner ~= ARGV[1] then
    return { 0, held }
  end
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return { tonumber(fence), held }
end
local now = redis.call('TIME')
local fence = now[1] * 1000 + math.floor(now[2] / 1000)
local stored = tonumber(redis.call('GET', KEYS[2]) or '0') or 0
local known = tonumber(ARGV[3])
if stored >= fence then fence = stored + 1 end
if known >= fence then fence = known + 1 end
local text = string.format('%.0f', fence)
redis.call('SET', KEYS[2], text)
redis.call('SET', KEYS[1], text .. ':' .. ARGV[1], 'PX', ARGV[2])
return { fence, text .. ':' .. ARGV[1] }
"""

RELEASE: Final = """
if redis.call('GET', KEYS[1]) == ARGV[1] then
  return redis.call('DEL', KEYS[1])
end
return 0
"""

WRITE: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return -1
end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
for i = 2, #KEYS do
  redis.call('SET', KEYS[i], ARGV[i + 1])
end
return redis.call('EXISTS', '{settings}', '{stats}')
""".replace("{settings}", names.SETTINGS).replace("{stats}", names.STATS)

CHECKPOINT: Final = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then
  return -1
end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('SET', KEYS[3], ARGV[3])
local acked = 0
for i = 5, #ARGV do
  acked = acked + redis.call('XACK', KEYS[4], ARGV[4], ARGV[i])
  redis.call('XDEL', KEYS[4], ARGV[i])
end
return acked
"""


class NotLeaderError(Exception):
    """The lease is not held (any more), so nothing was written."""


class Leader:
    """This sidecar's part in the election. All methods raise RedisError when Redis is away."""

    def __init__(self, client: aioredis.Redis, sidecar_id: str) -> None:
        self.id = sidecar_id
        self.fence = 0
        """The fencing number while leading, else 0."""
        self.holder = ""
        """Who leads, as last seen."""
        self._client = client
        self._known = 0
        self.changes = 0
        """How often this sidecar took the lead."""

    @property
    def leading(self) -> bool:
        """Whether the lease was held at the last word from Redis."""
        return self.fence > 0

    @property
    def superseded(self) -> bool:
        """Whether another sidecar leads, as last seen."""
        return not self.leading and self.holder not in {"", self.id}

    @property
    def token(self) -> str:
        """The lease's value while this sidecar holds it."""
        return f"{self.fence}:{self.id}"

    async def campaign(self) -> bool:
        """Take the lease if it is free, or prolong it; returns whether this sidecar leads."""
        fence, holder = await self._run(
            ACQUIRE, [names.LEADER, names.FENCE], [self.id, names.LEADER_LEASE_MS, self._known]
        )
        self.holder = holder.decode().partition(":")[2]
        if fence and fence != self.fence:
            self.fence = self._known = int(fence)
            self.changes += 1
            log.info("leading", fence=self.fence)
        elif not fence:
            self.step_down(f"{self.holder} holds the lease")
        return self.leading

    async def write(self, documents: Sequence[tuple[str, str]]) -> int:
        """Write (key, text) pairs and prolong the lease, in one script. Returns how many of settings and
        stats exist after it. Raises NotLeaderError when the lease is lost; nothing is written then."""
        keys = [names.LEADER, *(key for key, _ in documents)]
        values = [self.token, names.LEADER_LEASE_MS, *(text for _, text in documents)]
        existing = int(await self._run(WRITE, keys, values))
        if existing < 0:
            self.step_down("the lease has expired")
            raise NotLeaderError
        return existing

    async def checkpoint(self, stats: str, learned: str, done: Sequence[str]) -> None:
        """Store what was learned, and acknowledge and delete the batches it came from, in one script: else
        the stream would grow for ever. Raises NotLeaderError."""
        acked = await self._run(
            CHECKPOINT,
            [names.LEADER, names.STATS, names.LEARNED, names.COMPLETIONS],
            [self.token, stats, learned, names.COMPLETIONS_GROUP, *done],
        )
        if int(acked) < 0:
            self.step_down("the lease has expired")
            raise NotLeaderError

    async def release(self) -> None:
        """Give the lease up, so that another takes over at once."""
        if self.leading:
            token, self.fence = self.token, 0
            await self._run(RELEASE, [names.LEADER], [token])
            log.info("lease_given_up")

    def step_down(self, reason: str) -> None:
        """Stop publishing."""
        if self.leading:
            log.warning("not_leading_any_more", reason=reason, fence=self.fence)
        self.fence = 0

    async def _run(self, script: str, keys: list[str], values: list[Any]) -> Any:
        return await self._client.eval(script, len(keys), *keys, *values)
