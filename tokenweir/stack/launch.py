"""Brings a set of parts up or down, whatever runs of it already."""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tokenweir.atomic_file import write_atomically
from tokenweir.stack import ports
from tokenweir.stack.errors import StackError
from tokenweir.stack.identity import members
from tokenweir.stack.part import Part, Port
from tokenweir.stack.process import PidFile, read_pid_files, spawn, stop
from tokenweir.stack.state_dir import StateDir

READY_WITHIN_S = 60.0
POLL_S = 0.1
Report = Callable[[str, str, str], None]
"""(part, what happens to it: starting / ready / running / reloaded / stopped / note, details)."""


@contextmanager
def exclusively(folder: Path) -> Iterator[None]:
    """One `up` or `down` at a time for a state folder."""
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StackError(f"another `up` or `down` is at work on {folder.parent}; wait for it") from None
        os.set_inheritable(lock.fileno(), False)
        yield


def claim(folder: Path, config: Path) -> None:
    """Say whose state folder this is. Raises StackError where parts of another configuration run from it:
    they would be taken for this one's, and changed to what it says."""
    state = StateDir(folder.parent)
    if is_another_s(state, config):
        raise StackError(
            f"what runs from {state.root} was started for {state.owner}: give {config} a `state_dir` of its "
            f"own, or end that first (make down CONFIG={state.owner})"
        )
    write_atomically(folder / "configuration", f"{config}\n", 0o644)


def is_another_s(state: StateDir, config: Path) -> bool:
    """Whether parts run from a state folder that were started for another configuration file."""
    return state.owner not in {"", str(config)} and any(
        pid_file.running for pid_file in read_pid_files(state.run).values()
    )


@dataclass
class Started:
    """A part that this call started and has to see ready."""

    part: Part
    child: subprocess.Popen[bytes] | None
    since: float
    written: dict[Path, int]
    """How long each log was at the start."""

    def said(self) -> str:
        """The end of what its logs have gained since."""
        return "\n".join(filter(None, (tail(log, skip) for log, skip in self.written.items())))


def tail(log: Path, skip: int = 0, lines: int = 12) -> str:
    """The last lines of a log from byte `skip` on, under its name; nothing if there are none."""
    try:
        with log.open("rb") as file:
            file.seek(skip)
            text = file.read()[-8000:].decode(errors="replace")
    except OSError:
        return ""
    shown = "\n".join(f"    {line}" for line in text.splitlines()[-lines:])
    return f"The end of {log}:\n{shown}" if shown else ""


def _sizes(part: Part) -> dict[Path, int]:
    return {log: log.stat().st_size if log.exists() else 0 for log in (part.log, *part.other_logs)}


def _taken_ports(part: Part, present: PidFile | None) -> Iterator[tuple[Port, str]]:
    """The ports of the part that are another's, and whose; `present` is the part as it runs now."""
    for port in part.ports:
        if ports.is_free(port.host, port.number):
            continue
        if present and ports.holders(port.number) & set(members(present.identity)):
            continue
        yield port, ports.describe_holder(port.number)


def _refuse(taken: list[tuple[Port, str]], config: str) -> None:
    """Raises StackError where ports are taken, all of them at once; `config` is the file that sets
    them."""
    told = [f"port {port.number} on {port.host} ({port.key}) is taken by {holder}" for port, holder in taken]
    if len(taken) == 1:
        raise StackError(f"{told[0]}; stop that, or set another port as `{taken[0][0].key}` in {config}")
    if taken:
        lines = "".join(f"\n  - {line}" for line in told)
        raise StackError(f"ports are taken; stop what has them, or set others in {config}:{lines}")


def _start(part: Part, order: int, run: Path) -> Started:
    written = _sizes(part)
    child, identity = spawn(part.argv, part.environment, part.folder, part.log, part.user)
    if identity is not None:
        PidFile(part.name, order, identity, part.digest, int(part.stop_signal), part.grace_s).write(run)
    return Started(part, child, time.monotonic(), written)


def _reload(part: Part, pid_file: PidFile, run: Path) -> Started:
    assert part.reload_signal is not None
    written = _sizes(part)
    os.kill(pid_file.identity.pid, part.reload_signal)
    PidFile(
        pid_file.name, pid_file.order, pid_file.identity, part.digest, pid_file.stop_signal, part.grace_s
    ).write(run)
    return Started(part, None, time.monotonic(), written)


def _await(started: list[Started], report: Report) -> None:
    """Wait until each part is ready. Raises StackError with the end of its log for one that ends or takes too
    long."""
    pending = {item.part.name: item for item in started}
    while pending:
        for name, item in list(pending.items()):
            seconds = time.monotonic() - item.since
            awaited = item.part.ready()
            if awaited is None:
                report(name, "ready", f"{seconds:.1f} s")
                del pending[name]
                continue
            report(name, "starting", awaited)
            if item.child is not None and item.child.poll() is not None:
                status = item.child.returncode
                raise StackError(f"{item.part.title} ended with exit status {status}.\n{item.said()}")
            if seconds > READY_WITHIN_S:
                raise StackError(
                    f"{item.part.title} is not ready after {seconds:.0f} s: {awaited}.\n{item.said()}"
                )
        time.sleep(POLL_S)


def bring_up(parts: list[Part], run: Path, report: Report, config: str = "tokenweir.yaml") -> None:
    """Make exactly these parts run: start what is missing, renew what has changed, stop what is unwanted.
    `config` is the file that an error names."""
    pid_files = read_pid_files(run)
    wanted = {part.name: part for part in parts}
    for name, pid_file in reversed(list(pid_files.items())):
        part = wanted.get(name)
        fresh = (
            part is not None and pid_file.running and (pid_file.digest == part.digest or part.reload_signal)
        )
        if not fresh:
            take_down_one(pid_file, run, report)
            del pid_files[name]
    changed = [
        part for part in parts if part.name not in pid_files or pid_files[part.name].digest != part.digest
    ]
    _refuse([item for part in changed for item in _taken_ports(part, pid_files.get(part.name))], config)
    started: list[Started] = []
    for order, part in enumerate(parts):
        present = pid_files.get(part.name)
        if present and present.digest == part.digest:
            report(part.name, "running", "")
            continue
        if present:
            report(part.name, "reloaded", "its configuration has changed")
            started.append(_reload(part, present, run))
            continue
        _await([item for item in started if item.part.name in part.needs], report)
        started = [item for item in started if item.part.name not in part.needs]
        report(part.name, "starting", "")
        started.append(_start(part, order, run))
    _await(started, report)


def take_down_one(pid_file: PidFile, run: Path, report: Report) -> None:
    """Stop a part and forget it."""
    report(pid_file.name, "stopping", "")
    there = stop(pid_file, lambda note: report(pid_file.name, "note", note))
    (run / f"{pid_file.name}.json").unlink(missing_ok=True)
    report(pid_file.name, "stopped", "" if there else "it no longer ran")


def take_down(run: Path, report: Report) -> int:
    """Stop everything that was started, the last first; returns how many parts there were."""
    pid_files = read_pid_files(run)
    for pid_file in reversed(pid_files.values()):
        take_down_one(pid_file, run, report)
    return len(pid_files)
