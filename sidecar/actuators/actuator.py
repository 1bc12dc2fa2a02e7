"""The interface between decisions and the outside world.

Decisions hold an `Actuator` and never see what is behind it. A `Driver` is what is behind it: one file per
kind (Docker, Kubernetes, a command, a webhook). `guard.py` makes an actuator of a driver: one action at a
time, a time limit, dry runs, the audit log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol


class Action(StrEnum):
    """What can be done to an engine."""

    RESTART = "restart"
    START = "start"
    STOP = "stop"
    APPLY = "apply"
    """Restart it with other arguments."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an action went. That the action is done does not mean that the engine serves: telemetry says
    that."""

    action: Action
    ok: bool
    detail: str
    """What was done, or why it was not, in words for an operator."""
    duration_ms: float
    dry_run: bool = False
    """Nothing was done: `detail` says what would have been."""


class Actuator(Protocol):
    """What can be done to one backend. Never raises for what the outside world does: a failure is an
    `Outcome` that is not ok. `reason` goes into the audit log."""

    @property
    def kind(self) -> str:
        """docker, kubernetes, command or webhook."""

    async def restart(self, reason: str = "") -> Outcome:
        """Stop the engine, if it runs, and start it."""

    async def start(self, reason: str = "") -> Outcome:
        """Start it; one that runs stays as it is."""

    async def stop(self, reason: str = "") -> Outcome:
        """Stop it; one that is stopped stays as it is."""

    async def apply(self, arguments: Sequence[str], reason: str = "") -> Outcome:
        """Restart it with these arguments in place of its own."""


class ActuationError(Exception):
    """An action that failed; the text says why."""


class Driver(Protocol):
    """One way to act on one engine. Each method returns what it did, in words, or raises ActuationError."""

    kind: str

    async def restart(self) -> str:
        """As in `Actuator`."""

    async def start(self) -> str:
        """As in `Actuator`."""

    async def stop(self) -> str:
        """As in `Actuator`."""

    async def apply(self, arguments: Sequence[str]) -> str:
        """As in `Actuator`."""

    def describe(self, action: Action, arguments: Sequence[str] = ()) -> str:
        """What the action would do, in words: for the dry run."""
