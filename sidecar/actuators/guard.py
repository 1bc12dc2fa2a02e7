"""Makes an actuator of a driver: one action at a time, a time limit, dry runs, every action in the audit
log."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from typing import Final

import structlog

from sidecar.actuators.actuator import Action, ActuationError, Driver, Order, Outcome
from sidecar.actuators.audit import Audit
from sidecar.clock import monotonic_ms

log = structlog.get_logger(__name__)

MOST_ARGUMENTS: Final = 256
LONGEST_ARGUMENT: Final = 4096


class GuardedActuator:
    """The actuator of one backend (`Actuator`)."""

    def __init__(
        self,
        backend: str,
        driver: Driver,
        audit: Audit,
        *,
        timeout_ms: int,
        dry_run: bool,
        begins: Callable[[str], object] = lambda _: None,
        former: GuardedActuator | None = None,
    ) -> None:
        """`begins` is told the backend whose engine is about to start: its weights are read meanwhile.
        `former` was the backend's actuator before, and may still be at it."""
        self.backend = backend
        self._begins = begins
        self.dry_run = dry_run
        self._driver = driver
        self._former = former
        self._audit = audit
        self._timeout_ms = timeout_ms
        self._under_way: tuple[Order, float, asyncio.Task[Outcome]] | None = None
        """Also an action that outlasted its limit: nothing else is begun beside it."""

    @property
    def kind(self) -> str:
        """As in `Actuator`."""
        return self._driver.kind

    @property
    def busy(self) -> Action | None:
        """The action under way, if one is."""
        return self._under_way[0].action if self._under_way is not None else None

    async def restart(self, reason: str = "") -> Outcome:
        """As in `Actuator`."""
        return await self._act(Action.RESTART, (), reason)

    async def start(self, reason: str = "") -> Outcome:
        """As in `Actuator`."""
        return await self._act(Action.START, (), reason)

    async def stop(self, reason: str = "") -> Outcome:
        """As in `Actuator`."""
        return await self._act(Action.STOP, (), reason)

    async def apply(self, arguments: Sequence[str], reason: str = "") -> Outcome:
        """As in `Actuator`."""
        return await self._act(Action.APPLY, tuple(arguments), reason)

    async def _act(self, action: Action, arguments: tuple[str, ...], reason: str) -> Outcome:
        order = Order(secrets.token_hex(8), self.backend, action, arguments, reason)
        now = monotonic_ms()
        problem = _problem(arguments) if action is Action.APPLY else None
        busy = self._under_way or (self._former._under_way if self._former is not None else None)
        if busy is not None:
            other, began, _ = busy
            problem = f"{other.action} is under way since {(now - began) / 1000:.0f} s"
        if problem is not None:
            return self._end(Order(order.id, self.backend, action, (), reason), False, problem, now)
        if self.dry_run:
            text = self._driver.describe(order)
            self._audit.note(order, self.kind, "dry run", text)
            return Outcome(action, True, f"dry run: would {text}", 0.0, dry_run=True)
        self._audit.note(order, self.kind, "begun")
        if action is not Action.STOP:
            self._begins(self.backend)
        task = asyncio.create_task(self._carry_out(order, now), name=f"{action} {self.backend}")
        self._under_way = (order, now, task)
        done, _ = await asyncio.wait({task}, timeout=self._timeout_ms / 1000)
        if done:
            return task.result()
        text = f"no end within {self._timeout_ms / 1000:.0f} s (`timeout`)"
        self._audit.note(order, self.kind, "late", text, monotonic_ms() - now)
        return Outcome(action, False, text, monotonic_ms() - now, late=True)

    async def end(self) -> Outcome | None:
        """As in `Actuator`."""
        if self._under_way is None:
            return None
        return await asyncio.shield(self._under_way[2])

    async def _carry_out(self, order: Order, began: float) -> Outcome:
        """The action to its end, also when nobody waits for it any more."""
        try:
            return self._end(order, True, await self._driver.act(order), began)
        except ActuationError as error:
            return self._end(order, False, str(error), began)
        except asyncio.CancelledError:
            self._end(order, False, "the sidecar was told to end meanwhile", began)
            raise
        except Exception as error:
            log.exception("actuator_failed", backend=self.backend)
            return self._end(order, False, f"an error of the sidecar: {type(error).__name__}: {error}", began)
        finally:
            self._under_way = None

    def _end(self, order: Order, ok: bool, detail: str, began: float) -> Outcome:
        duration = monotonic_ms() - began
        self._audit.note(order, self.kind, "done" if ok else "failed", detail, duration)
        return Outcome(order.action, ok, detail, duration)


def _problem(arguments: Sequence[str]) -> str | None:
    """Why arguments cannot be passed on, or None."""
    if not arguments:
        return "no arguments are given"
    if len(arguments) > MOST_ARGUMENTS:
        return f"{len(arguments)} arguments; at most {MOST_ARGUMENTS} are passed on"
    if any(len(argument) > LONGEST_ARGUMENT or "\0" in argument for argument in arguments):
        return f"an argument is longer than {LONGEST_ARGUMENT} characters or holds a zero byte"
    return None
