"""Starts, remembers and stops the processes of the stack."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from tokenweir.atomic_file import write_atomically
from tokenweir.stack.identity import Identity, alive, identify, members


@dataclass(frozen=True)
class PidFile:
    """A small JSON file: the process, its place in the start order, and what it was started with."""

    name: str
    order: int
    identity: Identity
    digest: str
    stop_signal: int
    grace_s: float

    @property
    def running(self) -> bool:
        """Whether the process itself runs."""
        return alive(self.identity)

    def write(self, folder: Path) -> None:
        """Put it into `folder`, whole or not at all."""
        write_atomically(folder / f"{self.name}.json", json.dumps(asdict(self)), 0o644)


def read_pid_file(path: Path) -> PidFile | None:
    """The pid file at `path`; None when there is none or it is damaged."""
    try:
        fields = json.loads(path.read_text())
        return PidFile(**{**fields, "identity": Identity(**fields["identity"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None


def read_pid_files(folder: Path) -> dict[str, PidFile]:
    """All pid files, by name, in the order in which the parts were started."""
    found = [pid_file for path in folder.glob("*.json") if (pid_file := read_pid_file(path))]
    return {pid_file.name: pid_file for pid_file in sorted(found, key=lambda pid_file: pid_file.order)}


def spawn(
    argv: list[str], environment: Mapping[str, str], folder: Path, log: Path, user: str | None = None
) -> tuple[subprocess.Popen[bytes], Identity | None]:
    """Start a process that outlives this one, in a session of its own, its output appended to `log`."""
    with log.open("ab") as output:
        child = subprocess.Popen(
            argv,
            env=dict(environment),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
            user=user,
            group=user,
            extra_groups=[] if user else None,
        )
    return child, identify(child.pid)


def _signal(pids: list[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def _wait(identity: Identity, seconds: float, child: subprocess.Popen[bytes] | None) -> bool:
    """Whether the process and the children it leaves behind are gone in time."""
    until = time.monotonic() + seconds
    while members(identity):
        if child is not None:
            child.poll()
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


def stop(
    pid_file: PidFile, report: Callable[[str], None], child: subprocess.Popen[bytes] | None = None
) -> bool:
    """Stop exactly this process: its own signal, then SIGTERM, then SIGKILL. False if it was not there.

    `report` is told when it has to be pressed.
    """
    found = members(pid_file.identity)
    if not found:
        return False
    leader = [pid_file.identity.pid] if pid_file.running else found
    _signal(leader, pid_file.stop_signal)
    if _wait(pid_file.identity, pid_file.grace_s, child):
        return True
    report(f"{pid_file.name} did not end within {pid_file.grace_s:g} s; ending it")
    _signal(members(pid_file.identity), signal.SIGTERM)
    if not _wait(pid_file.identity, 3, child):
        _signal(members(pid_file.identity), signal.SIGKILL)
        _wait(pid_file.identity, 5, child)
    return True
