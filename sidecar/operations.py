"""Carries out what the control loop orders: restarts, starts and stops through the actuators, warm-ups,
changes of a backend's variant. Each runs beside the tick, never in it; only the leader's are begun."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import structlog

from sidecar import tasks
from sidecar.actuators import Actuator
from sidecar.actuators.actuator import Outcome
from sidecar.clock import monotonic_ms
from sidecar.control.alerts import Kind
from sidecar.control.fleet import Fleet
from sidecar.control.loop import ControlLoop, Orders
from sidecar.control.member import Member
from sidecar.control.restart import Order
from sidecar.telemetry.http import FetchError, Origin
from sidecar.warmer import Warmer, WarmUpError
from tokenweir.config import Config
from tokenweir.contract.records import State

log = structlog.get_logger(__name__)

LOOK_S: Final = 0.2
BETWEEN_PROMPTS_S: Final = 0.05
AFTER_FAILURE_S: Final = 1.0
"""After a warm-up prompt without an answer: an engine may serve its pages before it serves requests."""


@dataclass(frozen=True, slots=True)
class Hands:
    """What the operations reach for. `actuator` is None where a backend has none, `origin` where its name
    does not resolve."""

    actuator: Callable[[str], Actuator | None]
    origin: Callable[[str], Origin | None]
    config: Callable[[], Config]
    changed: Callable[[], None]
    """A state changed: publish soon."""
    superseded: Callable[[], bool] = lambda: False
    """Whether another sidecar leads: what is not begun yet is that one's to decide."""


class Operations:
    """The running operations, at most one of a kind for each backend."""

    def __init__(self, fleet: Fleet, loop: ControlLoop, hands: Hands) -> None:
        self._fleet = fleet
        self._loop = loop
        self._hands = hands
        self._warmer = Warmer()
        self._running: dict[str, asyncio.Task[None]] = {}

    def carry_out(self, orders: Orders) -> None:
        """Begin what a tick ordered."""
        for order in orders.restarts:
            self._begin(f"restart {order.backend}", self._restart(order))
        for backend in orders.starts:
            self._begin(f"start {backend}", self._start(backend))
        for backend in orders.stops:
            self._begin(f"stop {backend}", self._stop_when_empty(backend))
        for backend in orders.warm_ups:
            self._begin(f"warm-up {backend}", self._warm_up(backend))

    def change_variant(
        self,
        backend: str,
        arguments: Sequence[str],
        deadline_ms: float,
        changed: Callable[[], str | None],
    ) -> bool:
        """Begin to restart a backend with other arguments: drain, apply, ready, back. `changed` is called
        once the new arguments hold; it tells what could not be kept of that, or None. Returns False where one
        is under way."""
        return self._begin(
            f"variant {backend}", self._change_variant(backend, arguments, deadline_ms, changed)
        )

    def under_way(self) -> list[str]:
        """What runs now, in words."""
        return sorted(self._running)

    async def close(self) -> None:
        """Stop waiting for what runs."""
        await tasks.cancel(self._running.values())

    def _begin(self, name: str, work: Coroutine[Any, Any, None]) -> bool:
        running = self._running.get(name)
        # What has just reported its end may be ordered again before its task is cleared away.
        if running is not None and not running.done():
            work.close()
            return False
        task = asyncio.create_task(work, name=name)
        self._running[name] = task
        task.add_done_callback(lambda done: self._ended(name, done))
        return True

    def _ended(self, name: str, task: asyncio.Task[None]) -> None:
        if self._running.get(name) is task:
            del self._running[name]
        if not task.cancelled() and task.exception() is not None:
            log.error("operation_failed", operation=name, exc_info=task.exception())
        self._hands.changed()

    async def _restart(self, order: Order) -> None:
        backend = order.backend
        actuator = self._hands.actuator(backend)
        if actuator is None:
            self._loop.recovery.restarted(backend, False, "it has no actuator", monotonic_ms())
            return
        try:
            outcome = await actuator.restart(order.failure.text)
            if outcome.late:
                self._loop.recovery.late(backend, outcome.detail)
                outcome = await actuator.end() or outcome
        except Exception as error:
            self._loop.recovery.restarted(backend, False, f"{type(error).__name__}: {error}", monotonic_ms())
            raise
        _tell("restarted", backend, outcome)
        if outcome.dry_run:
            self._loop.recovery.not_restarted(backend, monotonic_ms())
            return
        self._loop.recovery.restarted(backend, outcome.ok, outcome.detail, monotonic_ms())

    async def _start(self, backend: str) -> None:
        actuator = self._hands.actuator(backend)
        if actuator is None:
            self._loop.pools.started(backend, False, "it has no actuator", monotonic_ms())
            return
        try:
            outcome = await actuator.start("promoted from standby")
        except Exception as error:
            self._loop.pools.started(backend, False, f"{type(error).__name__}: {error}", monotonic_ms())
            raise
        _tell("started", backend, outcome)
        self._loop.pools.started(backend, outcome.ok, outcome.detail, monotonic_ms())

    async def _stop_when_empty(self, backend: str) -> None:
        ok = False
        try:
            await self._until_empty(backend)
            member = self._fleet.members.get(backend)
            actuator = self._hands.actuator(backend)
            if member is None or member.promoted or actuator is None or self._hands.superseded():
                return
            outcome = await actuator.stop("back to standby")
            _tell("stopped", backend, outcome)
            ok = outcome.ok
        finally:
            self._loop.pools.stopped(backend, ok, monotonic_ms())

    async def _warm_up(self, backend: str) -> None:
        """Prompt after prompt, until the warm-up says that it is over."""
        while True:
            member = self._fleet.members.get(backend)
            if member is None or member.warming is None:
                return
            now, config = monotonic_ms(), self._hands.config()
            over = member.warming.over(config.ramp, now)
            if over is not None:
                log.info("warmed_up", backend=backend, how=over)
                self._loop.rollout.warmed(backend, config, now)
                return
            models = sorted(member.models().values())
            try:
                origin = self._hands.origin(backend)
                if origin is None or not models:
                    raise WarmUpError("it has no address or no model")
                ttft_ms = await self._warmer.prompt(origin, models[0])
            except (WarmUpError, FetchError) as error:
                if member.warming is not None and isinstance(error, WarmUpError) and error.refused:
                    member.warming.refused()
                log.info("warm_up_prompt_failed", backend=backend, reason=str(error))
                await asyncio.sleep(AFTER_FAILURE_S)
            else:
                if member.warming is not None:
                    member.warming.answered(ttft_ms)
                await asyncio.sleep(BETWEEN_PROMPTS_S)

    async def _change_variant(
        self,
        backend: str,
        arguments: Sequence[str],
        deadline_ms: float,
        changed: Callable[[], str | None],
    ) -> None:
        member = self._fleet.members[backend]
        alerts = self._loop.alerts
        problem: str | None = None
        # Not the operator's drain, which is kept on disk: if this sidecar ended now, nobody would end that.
        member.changing = f"a change to {' '.join(arguments)}"
        for kind in (Kind.CHANGE_CUT_OFF, Kind.CHANGE_FAILED):
            alerts.clear(kind, backend)
        self._hands.changed()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(deadline_ms / 1000):
                    await self._until_empty(backend)
            problem = await self._apply(member, arguments, changed)
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
            raise
        finally:
            member.changing = member.applied_at = None
            if problem is not None:
                alerts.tell(Kind.CHANGE_FAILED, backend, f"a change to {' '.join(arguments)}: {problem}")

    async def _apply(
        self, member: Member, arguments: Sequence[str], changed: Callable[[], str | None]
    ) -> str | None:
        """Restart a drained engine with other arguments, and wait until it serves; what went wrong."""
        backend = member.config.id
        if self._fleet.members.get(backend) is not member or member.leaving_since is not None:
            return "the backend was removed or replaced meanwhile; its engine was left as it is"
        if self._hands.superseded():
            log.warning("change_given_up", backend=backend, reason="another sidecar leads")
            return None
        actuator = self._hands.actuator(backend)
        if actuator is None:
            return "it has no actuator any more"
        outcome = await actuator.apply(arguments, "another variant")
        if outcome.late:
            self._loop.alerts.tell(
                Kind.CHANGE_FAILED, backend, f"a change is still under way: {outcome.detail}"
            )
            outcome = await actuator.end() or outcome
        _tell("variant_applied", backend, outcome)
        if not outcome.ok:
            return outcome.detail
        self._loop.alerts.clear(Kind.CHANGE_FAILED, backend)
        if outcome.dry_run:
            return None
        member.applied_at = monotonic_ms()
        unkept = changed()
        patience_ms = float(self._hands.config().restart.give_up)
        if not await self._until_up(backend, patience_ms):
            up = member.readiness.state is State.READY
            what = "shows no sign of a new process" if up else "does not serve"
            return f"it {what} {patience_ms / 1000:.0f} s after it was started with them"
        return unkept

    async def _until_empty(self, backend: str) -> None:
        """Until nothing runs there any more, or another sidecar leads, which sends requests there again."""
        while not (self._fleet.drain_progress(backend).done or self._hands.superseded()):  # noqa: ASYNC110
            await asyncio.sleep(LOOK_S)

    async def _until_up(self, backend: str, patience_ms: float) -> bool:
        """Until the engine has gone and serves again, or is no longer there to be waited for; whether that
        came in time."""
        end = monotonic_ms() + patience_ms
        gone = False
        while monotonic_ms() < end:
            member = self._fleet.members.get(backend)
            if member is None:
                return True
            up = member.readiness.state is State.READY
            new = member.arrived_at is not None or member.warming is not None or member.ramp.going_on
            gone = gone or not up or new
            if gone and up:
                return True
            await asyncio.sleep(LOOK_S)
        return False


def _tell(event: str, backend: str, outcome: Outcome) -> None:
    """Log how an action went; of a dry run that nothing was done."""
    if outcome.dry_run:
        log.info("dry_run", backend=backend, action=outcome.action.value, detail=outcome.detail)
    else:
        log.info(event, backend=backend, ok=outcome.ok, detail=outcome.detail)
