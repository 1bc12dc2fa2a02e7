"""A ratio of two running sums."""

from __future__ import annotations

import json

import pytest

from sidecar.learning.ratio import Ratio


def test_before_the_first_pair_the_default_holds_and_then_the_ratio_of_the_sums() -> None:
    ratio = Ratio()
    assert ratio.value(0.25, 0, 1) == 0.25
    ratio.add(10, 40)
    ratio.add(30, 60)
    assert ratio.value(0.25, 0, 1) == pytest.approx(0.4, rel=0.001)


def test_it_is_kept_within_its_bounds() -> None:
    ratio = Ratio()
    ratio.add(10, 1)
    assert ratio.value(1, 0, 4) == 4


def test_older_pairs_weigh_less_until_they_are_forgotten() -> None:
    ratio = Ratio()
    for _ in range(1000):
        ratio.add(1, 1)
    for _ in range(20_000):
        ratio.add(3, 1)
    assert ratio.value(1, 0, 10) == pytest.approx(3, rel=0.001)


def test_it_goes_on_from_what_was_stored() -> None:
    ratio = Ratio()
    ratio.add(10, 40)
    again = Ratio.restore(json.loads(json.dumps(ratio.dump())))
    assert again.value(1, 0, 1) == ratio.value(1, 0, 1)


@pytest.mark.parametrize("stored", [[1], [-1, 1], [float("nan"), 1], ["a", "b"], None])
def test_a_damaged_store_is_refused(stored: object) -> None:
    with pytest.raises((ValueError, TypeError)):
        Ratio.restore(stored)
