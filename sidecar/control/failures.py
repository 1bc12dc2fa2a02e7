"""Whether an engine has died, and of what: level 3 of the breaker.

Signs, any of which is enough: the engine's own error text says that the GPU is out of memory; its container
ended for want of memory; or it served and now refuses connections for a moment: a crash.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from sidecar.telemetry.health import Look
from sidecar.telemetry.readings import ContainerReading


class Cause(StrEnum):
    """Why an engine is restarted."""

    OUT_OF_MEMORY = "out_of_memory"
    CRASH = "crash"
    XID = "xid"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Failure:
    """An engine that has to be restarted."""

    cause: Cause
    text: str
    at: float = field(default=float("inf"), compare=False)
    """When it happened, monotonic ms, where that is known better than that it is so now."""


class FailureWatch:
    """Watches one backend for its death."""

    def __init__(self) -> None:
        self._served = False
        self._refused_since: float | None = None
        self._text_at: float | None = None
        self._told = False

    def looked(self, look: Look, ready: bool, now: float) -> None:
        """A look at the engine: `ready` tells whether the backend was in service before it."""
        if look is Look.REFUSED:
            if ready:
                self._served = True
            if self._refused_since is None:
                self._refused_since = now
            return
        if look in {Look.OK, Look.LOADING}:
            # It is there again, whoever brought it back.
            self._refused_since = None
            self._served = self._told = False
            if look is Look.LOADING:
                self._text_at = None

    def served_before(self) -> None:
        """The engine served before this watch began."""
        self._served = True

    @property
    def missed(self) -> bool:
        """Whether an engine that served has gone: what is done about it is not a start."""
        return self._served

    def rests(self) -> None:
        """Nobody misses the engine now: what its answers say is not acted on."""
        self._text_at = None

    def said_out_of_memory(self, now: float) -> None:
        """A request's answer said that the engine is out of memory."""
        self._text_at = now

    def verdict(self, now: float, crash_hold: float) -> Failure | None:
        """The failure, once for each."""
        if self._text_at is not None:
            self._text_at = None
            self._told = True
            return Failure(Cause.OUT_OF_MEMORY, "the engine's error says that it is out of memory")
        if self._told or not self._served or self._refused_since is None:
            return None
        if now - self._refused_since < crash_hold:
            return None
        self._told = True
        seconds = (now - self._refused_since) / 1000
        return Failure(Cause.CRASH, f"it served, and has refused connections for {seconds:.1f} s")


SETTLE_MS: Final = 500
"""The kernel says that it killed a process just before the container ends: its end is awaited so long."""


class ContainerWatch:
    """Watches the container that an engine runs in for an end for want of memory."""

    def __init__(self) -> None:
        self._seen: float | None = None

    def pass_over(self, until: float) -> None:
        """Ends until monotonic `until` are somebody else's: the sidecar that led then has acted on them."""
        self._seen = until if self._seen is None else max(self._seen, until)

    def verdict(self, container: ContainerReading | None, now: float) -> Failure | None:
        """The failure, once for each end; what had ended before the first look is history."""
        first, self._seen = self._seen is None, self._seen if self._seen is not None else now
        if container is None:
            return None
        at = container.oom_at
        if container.out_of_memory and container.ended_at is not None:
            at = max(at or container.ended_at, container.ended_at)
        if first or at is None or at <= (self._seen or 0.0):
            return None
        if container.running and now - at < SETTLE_MS:
            return None
        self._seen = at
        if container.out_of_memory:
            ended = f"it ended with exit status {container.exit_code}"
        else:
            ended = "a process in it was killed"
        return Failure(Cause.OUT_OF_MEMORY, f"its container ran out of memory: {ended}", at)
