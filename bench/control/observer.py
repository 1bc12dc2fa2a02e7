"""Watches from outside what the sidecar publishes and the gateway tells, and when."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from bench.control.fleet import MODEL
from tokenweir.contract import names

LOOK_S = 0.02
SWITCHES = ("refuse_new", "drop_low", "fallback", "burst")


@dataclass(frozen=True, slots=True)
class Look:
    """A snapshot, first seen at CLOCK_MONOTONIC s."""

    at: float
    snapshot: dict[str, Any]

    @property
    def model(self) -> dict[str, Any]:
        """What holds for the model of the bench."""
        found: dict[str, Any] = self.snapshot["models"].get(MODEL, {})
        return found

    def backend(self, name: str) -> dict[str, Any]:
        """One backend; empty where it is not in the snapshot."""
        rows = self.snapshot["backends"]
        return next((row for row in rows if row["id"] == name), {})

    def ready(self, name: str) -> bool:
        """Whether the backend is in rotation."""
        return self.backend(name).get("state") == "ready"


@dataclass
class Observer:
    """Reads Redis fifty times a second."""

    redis: Redis
    gateway: str
    looks: list[Look] = field(default_factory=list)
    oldest_wait_s: float = 0.0
    """As the gateway's lease tells."""
    depth: int = 0
    ejected: dict[str, float] = field(default_factory=dict)
    """Backend -> when the gateway first told that it has ejected it."""

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                async with asyncio.timeout(0.5):
                    snapshot, lease = await self.redis.mget(names.SNAPSHOT, names.GATEWAY + self.gateway)
                self._take_snapshot(snapshot)
                self._take_lease(lease)
            await asyncio.sleep(LOOK_S)

    def first(self, holds: Callable[[Look], bool], since: float) -> float | None:
        """When a snapshot first showed this, from `since` on."""
        return next((look.at for look in self.looks if look.at >= since and holds(look)), None)

    @property
    def last(self) -> Look:
        """The newest snapshot."""
        return self.looks[-1]

    def flaps(self) -> int:
        """How often a switch went on again, or a backend left again, after it had been back."""
        count = 0
        for switch in SWITCHES:
            count += _again([bool(look.model.get(switch)) for look in self.looks])
        for name in {row["id"] for look in self.looks for row in look.snapshot["backends"]}:
            count += _again([not look.ready(name) for look in self.looks if look.backend(name)])
        return count

    def _take_snapshot(self, text: bytes | str | None) -> None:
        if text is None:
            return
        # The sequence is looked for first: most looks see the snapshot before again.
        snapshot = json.loads(text)
        last = self.looks[-1].snapshot if self.looks else {"sequence": -1, "fence": -1}
        if (snapshot["fence"], snapshot["sequence"]) != (last["fence"], last["sequence"]):
            self.looks.append(Look(time.monotonic(), snapshot))

    def _take_lease(self, text: bytes | str | None) -> None:
        if text is None:
            return
        lease = json.loads(text)
        queue = lease.get("queue") or {}
        state = queue.get(MODEL, {}) if isinstance(queue, dict) else {}
        self.oldest_wait_s = state.get("oldest_ms", 0) / 1000
        self.depth = state.get("depth", 0)
        for name in lease.get("ejected") or {}:
            self.ejected.setdefault(name, time.monotonic())


def _again(states: list[bool]) -> int:
    """How many times it went on after the first."""
    begun = sum(now and not before for before, now in zip([False, *states], states, strict=False))
    return max(begun - 1, 0)
