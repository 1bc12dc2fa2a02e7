"""Looks at the gateway from outside: which engines it has given up, and what it still counts as in flight."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bench.faults.accounting import EngineFault
from tokenweir.contract import names


async def _read(client: Redis, key: str) -> dict[str, Any] | None:
    try:
        async with asyncio.timeout(0.5):
            text = await client.get(key)
    except (RedisError, OSError, TimeoutError):
        return None
    return json.loads(text) if text else None


async def out_of_rotation(client: Redis, gateway: str, backend: str) -> bool:
    """Whether the gateway's lease or the sidecar's snapshot says that the backend gets no requests."""
    lease = await _read(client, names.GATEWAY + gateway)
    if lease and backend in lease.get("ejected", {}):
        return True
    snapshot = await _read(client, names.SNAPSHOT)
    return any(
        each["id"] == backend and each["state"] != "ready" for each in (snapshot or {}).get("backends", [])
    )


async def until_ejected(client: Redis, gateway: str, fault: EngineFault, seconds: float) -> None:
    """Wait until the fault's engine is out of rotation and note when; give up after `seconds`."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if await out_of_rotation(client, gateway, fault.backend):
            fault.ejected = time.monotonic()
            return
        await asyncio.sleep(0.05)


async def busiest(client: Redis, gateway: str) -> dict[str, float]:
    """Return backend -> requests in flight, as the gateway's lease says; nothing while Redis is away."""
    lease = await _read(client, names.GATEWAY + gateway) or {}
    return {name: load.get("n", 0) for name, load in lease.get("backends", {}).items()}


def in_flight(lease: dict[str, Any] | None) -> dict[str, float]:
    """Return what a lease counts: requests and tokens over all backends, and waiting requests."""
    if lease is None:
        return {}
    loads = list(lease.get("backends", {}).values())
    return {
        **{name: sum(load.get(name, 0) for load in loads) for name in ("n", "held", "remaining", "variance")},
        "waiting": sum(state.get("depth", 0) for state in lease.get("queue", {}).values()),
    }


async def until_idle(client: Redis, gateway: str, seconds: float) -> dict[str, float]:
    """Wait until the lease counts exactly nothing; return what it counts at last."""
    end = time.monotonic() + seconds
    counted: dict[str, float] = {}
    while time.monotonic() < end:
        counted = in_flight(await _read(client, names.GATEWAY + gateway)) or counted
        if counted and not any(counted.values()):
            break
        await asyncio.sleep(0.2)
    return counted
