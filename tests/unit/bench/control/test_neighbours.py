"""What others of the machine use is told from what the bench uses itself."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from bench.control import neighbours
from bench.control.neighbours import LOOK_S, Neighbours

SPIN = "while True: pass"


@pytest.fixture
def cores(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})


def test_a_request_had_room_where_others_left_enough_all_the_time(cores):
    watched = Neighbours([(LOOK_S * n, 0.3) for n in range(1, 11)])
    assert watched.left_room(1.0, 2.0)
    watched.shares[3] = (LOOK_S * 4, 0.7)
    assert not watched.left_room(1.0, 2.0)
    assert not watched.left_room(1.8, 1.9)
    assert watched.left_room(2.2, 3.0)


def test_time_of_own_processes_is_counted_as_the_benchs():
    before = neighbours._own()
    with subprocess.Popen([sys.executable, "-c", SPIN]) as child:
        deadline, ticks = time.monotonic() + 60, 0
        try:
            while ticks < 0.2 * neighbours.TICKS and time.monotonic() < deadline:
                ticks = neighbours._own().get(child.pid, 0)
        finally:
            child.kill()
    assert os.getpid() in before
    assert child.pid not in before
    assert ticks >= 0.2 * neighbours.TICKS


def test_all_processors_are_counted():
    began, ticks = time.process_time(), neighbours._busy()
    while time.process_time() - began < 0.3:
        pass
    assert neighbours._busy() - ticks >= 0.2 * neighbours.TICKS
