"""The sidecar's way to Redis, and all that it needs there.

Commands and keys; `deploy/redis/users.acl` gives the user `sidecar` exactly these:

    get set eval exists       tw:leader tw:leader:fence tw:snapshot tw:settings tw:stats
                              tw:stats:state tw:stats:histories tw:changes tw:control
                              tw:sidecar:* tw:predictor:*
    mget                      tw:gateway:*
    zrangebyscore                                            tw:gateways
    xgroup|create xreadgroup xack xdel xlen                  tw:completions
    info time select auth

The scripts behind EVAL call get, set, del, exists, pexpire, time, xack and xdel; Redis checks these against
the user, too.

Without Redis every call raises RedisError within the time-out; callers go on with what they have.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import redis.asyncio as aioredis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError, ResponseError

from tokenweir.config.models import Redis as RedisConfig
from tokenweir.redis_options import redis_options

__all__ = ["TIMEOUT_S", "RedisError", "connect", "text_of"]

TIMEOUT_S: Final = 1.0
"""Longest that one command may take; the leader's lease is twice as long."""


def connect(config: RedisConfig, folder: Path) -> aioredis.Redis:
    """A client (connections are made when needed, and made again after a failure). The password file is
    relative to `folder`. Raises ConfigError when it cannot be used."""
    return aioredis.Redis(
        # One attempt: every caller comes again by itself, and a hidden retry could publish twice.
        retry=Retry(NoBackoff(), 0),
        health_check_interval=0,
        **redis_options(config, folder, TIMEOUT_S),
    )


async def text_of(client: aioredis.Redis, key: str) -> bytes | None:
    """What a key holds; None where it holds nothing, or something that is no text: whoever writes it next
    puts that right. Raises RedisError."""
    try:
        stored: Any = await client.get(key)
    except ResponseError as error:
        if "WRONGTYPE" not in str(error):
            raise
        return None
    return stored if isinstance(stored, bytes) else None
