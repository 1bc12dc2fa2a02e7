"""Faults that an operator switches on: what a sick server looks like from outside."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

FATAL_XIDS = frozenset({48, 62, 64, 74, 79, 94, 95, 119, 120, 140})
"""XID errors after which a GPU does nothing until it is reset (NVIDIA, XID Errors: uncorrectable ECC, fallen
off the bus, NVLink, GSP)."""

KINDS: dict[str, dict[str, Any]] = {
    "none": {},
    # Everything but /admin hangs, as under SIGSTOP.
    "freeze": {"seconds": None},
    # The engine hangs, the HTTP server goes on: /health is well, the counters stand still.
    "stall": {"seconds": None},
    # Every step takes `factor` times as long.
    "slow": {"factor": 5.0, "seconds": None},
    # A share of the requests is answered with an error at once; the engine never sees them.
    "fail_fast": {"status": 500, "share": 1.0, "seconds": None},
    # The connection is cut after some tokens.
    "drop_midstream": {"after_tokens": 5, "share": 1.0, "seconds": None},
    # The GPU reports an XID error and what it runs fails; after a fatal one it runs nothing more.
    "xid": {"code": 79, "seconds": None},
    # The process dies.
    "crash": {},
    # The process dies when it has sent the first piece of a cache.
    "crash_in_transfer": {},
    # /metrics answers with this status; the rest works.
    "refuse_metrics": {"status": 503, "seconds": None},
}

_NUMBERS = {
    "seconds": (0.0, 1e6),
    "factor": (0.01, 1e4),
    "status": (400, 599),
    "share": (0.0, 1.0),
    "after_tokens": (0, 1e6),
    "code": (1, 1000),
}


class FaultError(ValueError):
    """A fault that there is not. The message names what there is."""


@dataclass(frozen=True)
class Actions:
    """What faults do to the server."""

    stop: Callable[[], None]
    go: Callable[[], None]
    slowdown: Callable[[float], None]
    fail_all: Callable[[str], None]
    crash: Callable[[], None]


class Faults:
    """The faults that are on, by kind. Several may be; a new one of the same kind replaces the old."""

    def __init__(self, actions: Actions, seed: int = 0) -> None:
        self._actions = actions
        self._random = Random(seed)
        self.active: dict[str, dict[str, Any]] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._thawed = asyncio.Event()
        self._thawed.set()

    def parse(self, body: Any) -> tuple[str, dict[str, Any]]:
        """Kind and checked parameters of an order. Raises FaultError."""
        if not isinstance(body, dict) or body.get("kind") not in KINDS:
            raise FaultError(f'expected {{"kind": one of {", ".join(KINDS)}}}')
        kind = body["kind"]
        parameters = dict(KINDS[kind])
        for name, value in body.items():
            if name == "kind":
                continue
            if name not in parameters:
                raise FaultError(f"{kind} has no {name!r}; it has: {', '.join(parameters) or 'nothing'}")
            low, high = _NUMBERS[name]
            if value is None and name == "seconds":
                continue
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not low <= value <= high:
                raise FaultError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")
            parameters[name] = value
        return kind, parameters

    def set(self, kind: str, parameters: dict[str, Any]) -> None:
        """Switch a fault on; `none` switches all off."""
        if kind == "none":
            for active in list(self.active):
                self.clear(active)
            return
        self.clear(kind)
        self.active[kind] = parameters
        if kind in ("freeze", "stall"):
            self._actions.stop()
        if kind == "freeze":
            self._thawed.clear()
        elif kind == "slow":
            self._actions.slowdown(parameters["factor"])
        elif kind == "xid":
            self._actions.fail_all(f"GPU error: XID {parameters['code']}")
        elif kind == "crash":
            self._actions.crash()
        if (seconds := parameters.get("seconds")) is not None:
            self._timers[kind] = asyncio.get_running_loop().call_later(seconds, self.clear, kind)

    def clear(self, kind: str) -> None:
        """Switch one fault off."""
        if timer := self._timers.pop(kind, None):
            timer.cancel()
        if self.active.pop(kind, None) is None:
            return
        if kind == "freeze":
            self._thawed.set()
        if kind in ("freeze", "stall") and not {"freeze", "stall"} & self.active.keys():
            self._actions.go()
        elif kind == "slow":
            self._actions.slowdown(1.0)

    async def thawed(self) -> None:
        """Wait while the server is frozen."""
        while not self._thawed.is_set():
            await self._thawed.wait()

    def after_a_piece(self) -> None:
        """A piece of a cache was sent."""
        if "crash_in_transfer" in self.active:
            self._actions.crash()

    @property
    def xid(self) -> int:
        """The GPU's last XID error, 0 for none."""
        return int(self.active.get("xid", {}).get("code", 0))

    def rejection(self) -> tuple[int, str] | None:
        """Status and message with which a request fails at once, if one does."""
        if self.xid in FATAL_XIDS:
            return 500, f"GPU error: XID {self.xid}"
        fault = self.active.get("fail_fast")
        if fault and self._random.random() < fault["share"]:
            return int(fault["status"]), "the engine fails (emulated)"
        return None

    def cut_after(self) -> int | None:
        """Tokens after which a request's connection is cut, if it is."""
        fault = self.active.get("drop_midstream")
        if fault and self._random.random() < fault["share"]:
            return int(fault["after_tokens"])
        return None
