"""Keeps the cores from sleeping while something is measured."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator

SPIN = "import os; os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))\nwhile True: pass"


@contextlib.contextmanager
def awake() -> Iterator[None]:
    """One loop a core that runs only when nothing else would, as `idle=poll` does for a whole kernel.

    A virtual machine leaves to its host when a core has nothing to do. Whoever then sends that core work pays
    for its return, some microseconds a time, and pays more often the less busy the other side is: without
    this, a plain nginx costs twice as much with one connection as with 64. SCHED_IDLE yields at once to any
    other class (sched(7)).
    """
    spinning = []
    try:
        for core in sorted(os.sched_getaffinity(0)):
            process = subprocess.Popen([sys.executable, "-S", "-E", "-c", SPIN])
            spinning.append(process)
            os.sched_setaffinity(process.pid, {core})
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()
