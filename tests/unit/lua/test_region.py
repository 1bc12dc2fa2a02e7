"""`lua/tokenweir/region.lua`: what all workers of a gateway share."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from typing import Any

import pytest

from tokenweir.luavm import new_runtime


@pytest.fixture
def region() -> Iterator[Any]:
    """A region whose worker is this process."""
    made = new_runtime().require(b"tokenweir.region")
    made = made[0] if isinstance(made, tuple) else made
    made.open(b"/tmp")
    made.claim(os.getpid())
    yield made
    made.release()


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
