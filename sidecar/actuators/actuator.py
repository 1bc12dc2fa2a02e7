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
    late: bool = False
    """It has outlasted its time and is still under way: see `Actuator.end`."""


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
        """Restart it with these arguments in place of its own: those of the container, not of its entry
        point; of a command or a webhook, what its receiver makes of them."""

    async def end(self) -> Outcome | None:
        """Wait for the end of what is under way, however long that takes; None where nothing is."""


class ActuationError(Exception):
    """An action that failed; the text says why."""


@dataclass(frozen=True, slots=True)
class Order:
    """One action on one backend, as a driver gets it."""

    id: str
    """Of the action, in the audit log too: a receiver that gets it twice does it once."""
    backend: str
    action: Action
    arguments: tuple[str, ...] = ()
    """Of `apply`."""
    reason: str = ""


class Driver(Protocol):
    """One way to act on one engine."""

    kind: str

    async def act(self, order: Order) -> str:
        """Do it; what was done, in words. Raises ActuationError."""

    def describe(self, order: Order) -> str:
        """What `act` would do, in words: for the dry run."""
