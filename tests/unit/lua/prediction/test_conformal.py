"""`lua/tokenweir/core/prediction/conformal.lua`."""

from __future__ import annotations

import random
from typing import Any

import pytest


@pytest.fixture
def follow(require: Any) -> Any:
    return require("tokenweir.core.prediction.conformal").follow


def run(follow: Any, draw: Any, count: int, start: float = 0.0) -> tuple[float, float]:
    """The correction after some outputs, and the share that lay above the quantile 1 + correction."""
    correction, missed = start, 0
    for _ in range(count):
        above = draw() > 1 + correction
        missed += above
        correction = follow(correction, above, 0.1, 0.03, -0.9, 8)
    return correction, missed / count


@pytest.mark.parametrize("scale", [0.2, 1, 3])
def test_however_wrong_the_quantile_is_it_is_met_as_often_as_it_says(follow: Any, scale: float) -> None:
    random.seed(1)
    start, _ = run(follow, lambda: random.expovariate(1 / scale), 1000)
    _, missed = run(follow, lambda: random.expovariate(1 / scale), 5000, start)
    assert missed == pytest.approx(0.1, abs=0.02)


def test_a_correction_stays_within_its_bounds(follow: Any) -> None:
    assert run(follow, lambda: 1e9, 1000)[0] == 8
    assert run(follow, lambda: -1e9, 2000)[0] == -0.9
