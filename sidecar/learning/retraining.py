"""Trains the predictor on a schedule, and when predictions have gone astray, in a process of its own.

The process runs at the lowest priority and on one thread; it publishes by itself, and only a model that is
not worse than the one in service. Only the leader trains."""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from sidecar.clock import monotonic_ms
from sidecar.learning import background
from sidecar.learning.deviation import LIMIT
from tokenweir.recorded import ENOUGH

log = structlog.get_logger(__name__)

NICENESS: Final = 19
FIRST_MS: Final = 120_000
"""After the start, before a first training where no model is in service."""
AGAIN_MS: Final = 3_600_000
"""At least so long between two trainings."""
ASTRAY_MINUTES: Final = 15
"""Minutes of deviation beyond the limit, of the last twenty, that call for a training before its time."""
LOOKED_AT: Final = 20
TOLD_LINES: Final = 5
TIMEOUT_S: Final = 3600.0
MEND: Final = (
    "`make train` installs requirements-train.lock and trains; a container's image is built with TRAIN=1"
)
NEEDED: Final = ("sklearn", "lupa", "pyarrow", "numpy")


def missing() -> list[str]:
    """Packages that training needs and that are not installed."""
    return background.lacking(NEEDED)


class Retraining:
    """When to train, and the process that does. `step` is called while leading, about once a second."""

    def __init__(self, config: Path, command: Sequence[str] | None = None) -> None:
        self._command = list(command or [sys.executable, "-m", "model", "train", "--config", str(config)])
        self._process: asyncio.subprocess.Process | None = None
        self._task: asyncio.Task[None] | None = None
        self._started_at = monotonic_ms()
        self._trained_at: float | None = None
        self._minutes: deque[tuple[int, bool]] = deque(maxlen=LOOKED_AT)
        self.runs = 0
        self.failures = 0
        """Trainings that published nothing."""
        self.last = "not yet"
        """How the last one ended, for people."""

    @property
    def running(self) -> bool:
        """Whether a training runs."""
        return self._task is not None and not self._task.done()

    def observe(self, minute: int, deviation: float | None) -> None:
        """The fleet's deviation in a minute; told twice it counts once."""
        if deviation is not None and (not self._minutes or self._minutes[-1][0] != minute):
            self._minutes.append((minute, deviation > LIMIT))

    @property
    def astray(self) -> bool:
        """Whether predictions have been off for most of the last minutes."""
        return sum(off for _, off in self._minutes) >= ASTRAY_MINUTES

    def due(self, every: int | None, in_service: bool, recorded: int) -> str | None:
        """Why a training is due, or None. `every`: ms between two, None for never; `in_service`: whether
        there is a model; `recorded`: completions on disk. What the bundled set teaches is of other traffic:
        on requests of a kind that is not in it, running figures are as good, so nothing is trained by itself
        before there are completions enough."""
        if every is None or self.running or recorded < ENOUGH:
            return None
        now = monotonic_ms()
        if self._trained_at is None:
            since = now - self._started_at
            if not in_service:
                return "none in service" if since >= FIRST_MS else None
        else:
            since = now - self._trained_at
        if since >= every:
            return "schedule"
        return "deviation" if self.astray and since >= AGAIN_MS else None

    def step(self, every: int | None, in_service: bool, recorded: int) -> None:
        """Begin a training where one is due."""
        reason = self.due(every, in_service, recorded)
        if reason is not None:
            self.begin(reason)

    def begin(self, reason: str) -> None:
        """Begin a training, unless one runs."""
        if self.running:
            return
        self._trained_at = monotonic_ms()
        self._minutes.clear()
        lacking = missing()
        if lacking:
            self.last = f"not installed: {', '.join(lacking)}; {MEND}"
            log.warning("training_not_possible", missing=lacking, mend=MEND)
            return
        log.info("training_began", reason=reason)
        self._task = asyncio.create_task(self._run(), name="train")

    async def _run(self) -> None:
        try:
            self._process = await background.begin(
                self._command,
                NICENESS,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                start_new_session=True,
            )
            output, _ = await asyncio.wait_for(self._process.communicate(), TIMEOUT_S)
        except TimeoutError:
            self._kill()
            self._ended("took too long", failed=True)
            return
        except OSError as error:
            self._ended(str(error), failed=True)
            return
        finally:
            # A sidecar that stops takes its training with it.
            self._kill()
        lines = [line for line in output.decode("utf-8", "replace").splitlines() if line.strip()]
        told = " / ".join(lines[-TOLD_LINES:])
        self._ended(told, failed=self._process.returncode != 0)

    def _ended(self, told: str, failed: bool) -> None:
        self.runs += 1
        self.failures += failed
        self.last = told[-500:]
        (log.warning if failed else log.info)("training_ended", published=not failed, told=self.last)

    def _kill(self) -> None:
        process = self._process
        if process is not None and process.returncode is None:
            process.kill()

    async def finished(self) -> None:
        """Wait for a training that runs."""
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)

    async def stop(self) -> None:
        """End a training that runs."""
        if self._task is not None and not self._task.done():
            self._task.cancel()
            await self.finished()
