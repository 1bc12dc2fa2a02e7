"""Cores are kept awake by what yields to everything else, for as long as is measured."""

from __future__ import annotations

import os
from pathlib import Path

from bench.overhead.awake import awake


def children() -> list[int]:
    tasks = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def test_a_loop_a_core_runs_while_something_is_measured() -> None:
    before = set(children())
    with awake():
        spinning = set(children()) - before
        assert {frozenset(os.sched_getaffinity(pid)) for pid in spinning} == {
            frozenset({core}) for core in os.sched_getaffinity(0)
        }
    assert not spinning & set(children())


def test_it_yields_to_every_other_process() -> None:
    before = set(children())
    with awake():
        for pid in set(children()) - before:
            while os.sched_getscheduler(pid) != os.SCHED_IDLE:  # it is still starting
                pass
