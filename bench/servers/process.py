"""A child process of a bench: it never outlives the bench, and its output goes to a file."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)


class StartError(RuntimeError):
    """A server did not come up; the message ends with the tail of its log."""


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class Process:
    """One server process, started at once; use as a context manager or call `stop`."""

    def __init__(
        self,
        name: str,
        argv: Sequence[str],
        log: Path,
        *,
        cwd: Path | None = None,
        env: dict[str, str] | None = None,
    ) -> None:
        self.name = name
        self.log = log
        self._argv = list(argv)
        self._cwd = cwd
        self._env = {**os.environ, **(env or {})}
        self._child = self._spawn()

    def _spawn(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as sink:
            return subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                cwd=self._cwd,
                env=self._env,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  (no thread is started before)
            )

    @property
    def pid(self) -> int:
        """Process id of the present child."""
        return self._child.pid

    @property
    def running(self) -> bool:
        """Whether the child has not ended."""
        return self._child.poll() is None

    def wait_until(self, ready: Callable[[], bool], what: str, seconds: float = 15) -> None:
        """Poll `ready` until it is true; raise `StartError` when the process ends or the time is up."""
        end = time.monotonic() + seconds
        while not ready():
            if not self.running:
                raise StartError(f"{self.name} ended before {what}{self.tail()}")
            if time.monotonic() > end:
                raise StartError(f"{self.name}: {what} did not happen within {seconds:.0f} s{self.tail()}")
            time.sleep(0.02)

    def tail(self, lines: int = 12) -> str:
        """Return the end of the log, indented, for an error message."""
        text = self.log.read_text(errors="replace").splitlines()[-lines:] if self.log.exists() else []
        return "".join(f"\n    {line}" for line in text)

    def send(self, number: int) -> None:
        """Send a signal to the child if it runs."""
        if self.running:
            self._child.send_signal(number)

    def freeze(self) -> None:
        """Stop the process where it stands (SIGSTOP): its sockets stay open and silent."""
        self.send(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let a frozen process go on."""
        self.send(signal.SIGCONT)

    def kill(self) -> None:
        """End the process at once (SIGKILL)."""
        self.send(signal.SIGKILL)
        self._child.wait()

    def restart(self) -> None:
        """Start the same command again after it ended."""
        self.kill()
        self._child = self._spawn()

    def stop(self, number: int = signal.SIGTERM, seconds: float = 5) -> None:
        """Ask the process to end, and insist after `seconds`."""
        self.send(signal.SIGCONT)
        self.send(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(seconds)
        self.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
