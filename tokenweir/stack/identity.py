"""Which process a pid file means: a pid alone may long belong to another."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")


@dataclass(frozen=True)
class Identity:
    """A process by its pid, its start in clock ticks since boot, and the boot."""

    pid: int
    start: int
    boot: str


def boot_id() -> str:
    """The kernel's id of this boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def _stat(pid: int) -> list[str] | None:
    """The fields of /proc/PID/stat after the name: state, ppid, pgrp, session, ...; None when it is gone."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def identify(pid: int) -> Identity | None:
    """The identity of a running process; None for one that is gone or a zombie."""
    fields = _stat(pid)
    if fields is None or fields[0] in "ZX":
        return None
    return Identity(pid, int(fields[19]), boot_id())


def alive(identity: Identity) -> bool:
    """Whether this very process runs."""
    return identify(identity.pid) == identity


def members(identity: Identity) -> list[int]:
    """Pids of the session that the process leads or led, itself included.

    The kernel gives no pid away while a session of that number has members, so while nobody else leads it
    they are the process's own children, left behind.
    """
    if identity.boot != boot_id():
        return []
    leader = identify(identity.pid)
    if leader is not None and leader != identity:
        return []
    found = []
    for entry in PROC.iterdir():
        if not entry.name.isdigit():
            continue
        fields = _stat(int(entry.name))
        if fields and fields[0] not in "ZX" and int(fields[3]) == identity.pid:
            found.append(int(entry.name))
    return found
