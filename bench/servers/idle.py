"""Keeps the processors that have nothing to do from sleeping while a bench measures.

Who sends to a process on a sleeping processor wakes it with an interrupt. In a virtual machine that leaves
the guest: it takes the sender several microseconds. The faster of two systems keeps its clients and engines
awake; the slower one is charged for waking them at every request. One that polls when it is idle needs no
interrupt. Machines that are to answer with low latency are set so as well (tuned's `network-latency`).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterator
from pathlib import Path

LATENCY = Path("/dev/cpu_dma_latency")
"""What is written here bounds, in us, how long an idle processor may take to wake, for as long as it is open
(Linux, Documentation/power/pm_qos_interface)."""
STATES = Path("/sys/devices/system/cpu/cpu0/cpuidle")


def _can_poll(states: Path) -> bool:
    with contextlib.suppress(OSError):
        return (states / "state0/name").read_text().strip() == "POLL"
    return False


@contextlib.contextmanager
def awake(latency: Path = LATENCY, states: Path = STATES) -> Iterator[bool]:
    """Have idle processors poll; yields whether they do: it takes root, and a kernel that knows how."""
    if not _can_poll(states):
        yield False
        return
    try:
        held = latency.open("wb", buffering=0)
    except OSError:
        yield False
        return
    with held:
        held.write(struct.pack("=i", 0))
        yield True
