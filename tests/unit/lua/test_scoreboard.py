"""`lua/tokenweir/scoreboard.lua`: the rows of a gateway's workers."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tokenweir.luavm import new_runtime


@pytest.fixture
def runtime() -> Any:
    """Lua."""
    return new_runtime()


def required(runtime: Any, name: bytes) -> Any:
    made = runtime.require(name)
    return made[0] if isinstance(made, tuple) else made


@pytest.fixture
def scoreboard(runtime: Any) -> Iterator[Any]:
    """That of a gateway whose worker is this process."""
    required(runtime, b"tokenweir.region").open(b"/tmp")
    made = required(runtime, b"tokenweir.scoreboard")
    made.claim(os.getpid())
    yield made
    made.release()


def pids(runtime: Any) -> list[int]:
    """Who has the rows, as all workers see it."""
    region = required(runtime, b"tokenweir.region")
    pid = runtime.eval(b"function(map, k) return map.worker[k].pid end")
    found = (int(pid(region.map(), k)) for k in range(int(region.WORKERS)))
    return [process for process in found if process]


def tide(scoreboard: Any) -> float:
    return float(scoreboard.tide()[0])


def test_each_release_makes_another_tide(scoreboard: Any) -> None:
    before = tide(scoreboard)
    scoreboard.gives_back()
    assert math.isnan(tide(scoreboard)), "one is under way"
    scoreboard.gave_back(1.0)
    assert tide(scoreboard) == before + 2


def test_a_worker_that_goes_takes_no_release_with_it(scoreboard: Any) -> None:
    before = tide(scoreboard)
    for _ in range(3):
        scoreboard.gives_back()
        scoreboard.gave_back(1.0)
    scoreboard.release()
    assert tide(scoreboard) == before + 6
    scoreboard.claim(os.getpid())
    assert tide(scoreboard) == before + 6


def test_one_that_died_in_the_middle_of_a_release_counts_as_done_with_it(scoreboard: Any) -> None:
    before = tide(scoreboard)
    scoreboard.gives_back()
    scoreboard.release()
    assert tide(scoreboard) == before + 2


def test_a_worker_that_gave_its_entry_back_was_not_swept(scoreboard: Any) -> None:
    scoreboard.release()
    scoreboard.claim(os.getpid())
    assert scoreboard.sweep() == 0


def test_a_dead_worker_is_counted_once_though_its_successor_took_its_entry(
    runtime: Any, scoreboard: Any
) -> None:
    runtime.eval(b"""function(region, scoreboard)
        -- As the kernel leaves it: unlocked, with all that it held.
        local ffi = require "ffi"
        ffi.cast("uint8_t *", region.map().live)[1] = 1
        region.map().worker[1].pid = 4242
    end""")(required(runtime, b"tokenweir.region"), scoreboard)
    assert scoreboard.sweep() == 1
    assert scoreboard.sweep() == 0


def test_a_worker_that_found_every_entry_taken_moves_into_the_first_that_is_free(
    runtime: Any, scoreboard: Any
) -> None:
    scoreboard.release()
    (file,) = {
        int(entry.name)
        for entry in Path("/proc/self/fd").iterdir()
        if entry.is_symlink() and "tokenweir-region" in str(entry.readlink())
    }
    rows = int(scoreboard.WORKERS)
    take_all = f"import fcntl; fcntl.lockf({file}, fcntl.LOCK_EX, {rows}); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", take_all], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[file]
    ) as others:
        assert others.stdout
        others.stdout.readline()
        entry, problem = scoreboard.claim(os.getpid())
        assert entry is None
        assert b"entries" in problem
        scoreboard.arrive(0)
        scoreboard.sweep()
        assert pids(runtime) == []
        others.communicate(b"\n")
    scoreboard.sweep()
    assert pids(runtime) == [os.getpid()]
    scoreboard.arrive(0)
    assert scoreboard.arrivals(0) == 2
    assert scoreboard.live()[2] == 1
