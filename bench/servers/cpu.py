"""CPU time and memory of a process and all that descend from it, read from /proc."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Stat:
    """What a bench needs of one /proc/PID/stat line. Times are seconds of CPU, memory is bytes."""

    pid: int
    parent: int
    cpu_s: float
    """User and system time of the process, all its threads, and the children it has waited for."""
    resident: int


def parse_stat(line: str) -> Stat:
    """Read one /proc/PID/stat line; the command in brackets may hold blanks and brackets (proc(5))."""
    head, _, rest = line.rpartition(")")
    fields = rest.split()
    ticks = sum(int(fields[index]) for index in (11, 12, 13, 14))
    return Stat(
        pid=int(head.split("(", 1)[0]),
        parent=int(fields[1]),
        cpu_s=ticks * _TICK_S,
        resident=int(fields[21]) * _PAGE,
    )


def _all_stats() -> dict[int, Stat]:
    stats = {}
    for entry in _PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = parse_stat((entry / "stat").read_text())
            except (OSError, IndexError, ValueError):
                continue
            stats[stat.pid] = stat
    return stats


def command_line(pid: int) -> str:
    """Return a process's command line, into which nginx writes its role; raise OSError when it is gone."""
    return (_PROC / str(pid) / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace").strip()


def tree(root: int) -> list[Stat]:
    """Return the process `root` and its descendants, parents first."""
    stats = _all_stats()
    found = [stats[root]] if root in stats else []
    for stat in found:
        found.extend(other for other in stats.values() if other.parent == stat.pid)
    return found


def cpu_seconds(root: int) -> float:
    """Return the CPU seconds that the tree of `root` has used so far."""
    return sum(stat.cpu_s for stat in tree(root))


def resident_bytes(root: int) -> int:
    """Return the resident memory of the tree of `root` (shared pages are counted in every process)."""
    return sum(stat.resident for stat in tree(root))
