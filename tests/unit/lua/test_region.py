"""`lua/tokenweir/region.lua`: what all workers of a gateway share."""

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


@pytest.fixture
def region(runtime: Any) -> Iterator[Any]:
    """A region whose worker is this process."""
    made = runtime.require(b"tokenweir.region")
    made = made[0] if isinstance(made, tuple) else made
    made.open(b"/tmp")
    made.claim(os.getpid())
    yield made
    made.release()


def pids(runtime: Any, region: Any) -> list[int]:
    """Who has the entries, as all workers see it."""
    pid = runtime.eval(b"function(map, k) return map.worker[k].pid end")
    found = (int(pid(region.map(), k)) for k in range(int(region.WORKERS)))
    return [process for process in found if process]


def tide(region: Any) -> float:
    return float(region.tide()[0])


def test_each_release_makes_another_tide(region: Any) -> None:
    before = tide(region)
    region.gives_back()
    assert math.isnan(tide(region)), "one is under way"
    region.gave_back(1.0)
    assert tide(region) == before + 2


def test_a_worker_that_goes_takes_no_release_with_it(region: Any) -> None:
    before = tide(region)
    for _ in range(3):
        region.gives_back()
        region.gave_back(1.0)
    region.release()
    assert tide(region) == before + 6
    region.claim(os.getpid())
    assert tide(region) == before + 6


def test_one_that_died_in_the_middle_of_a_release_counts_as_done_with_it(region: Any) -> None:
    before = tide(region)
    region.gives_back()
    region.release()
    assert tide(region) == before + 2


def test_a_worker_that_found_every_entry_taken_moves_into_the_first_that_is_free(
    runtime: Any, region: Any
) -> None:
    region.release()
    (file,) = {
        int(entry.name)
        for entry in Path("/proc/self/fd").iterdir()
        if entry.is_symlink() and "tokenweir-region" in str(entry.readlink())
    }
    take_all = (
        f"import fcntl; fcntl.lockf({file}, fcntl.LOCK_EX, {int(region.WORKERS)}); print(flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", take_all], stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=[file]
    ) as others:
        assert others.stdout
        others.stdout.readline()
        entry, problem = region.claim(os.getpid())
        assert entry is None
        assert b"entries" in problem
        region.arrive(0)
        region.sweep()
        assert pids(runtime, region) == []
        others.communicate(b"\n")
    region.sweep()
    assert pids(runtime, region) == [os.getpid()]
    region.arrive(0)
    assert region.arrivals(0) == 2
    assert region.live()[2] == 1
