"""Mean, median and spread of output lengths."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.learning.lengths import MEMORY, Lengths


def of(values, cut=()):
    lengths = Lengths()
    for value in values:
        lengths.add(value)
    for value in cut:
        lengths.add(value, cut=True)
    return lengths


def test_nothing_is_said_before_the_first_output():
    assert Lengths().figures() is None


def test_equal_outputs_give_their_length_and_no_spread():
    figures = of([137] * 10).figures()
    assert (figures.mean, figures.median) == (pytest.approx(137), pytest.approx(137))
    assert figures.spread == pytest.approx(0, abs=1e-6)


def test_a_lognormal_traffic_is_recovered():
    source = random.Random(1)
    figures = of([source.lognormvariate(5, 1) for _ in range(20_000)]).figures()
    assert figures.median == pytest.approx(math.exp(5), rel=0.12)
    assert figures.mean == pytest.approx(math.exp(5.5), rel=0.15)
    assert figures.spread == pytest.approx(1, rel=0.1)


def test_outputs_cut_by_their_limit_do_not_pull_the_figures_down():
    source = random.Random(2)
    lengths = Lengths()
    for n in range(6000):
        length = source.lognormvariate(5, 0.8)
        limit = 64 if n % 2 else 100_000
        lengths.add(min(length, limit), cut=length > limit)
    figures = lengths.figures()
    assert figures.median == pytest.approx(math.exp(5), rel=0.15)
    assert figures.mean == pytest.approx(math.exp(5 + 0.32), rel=0.2)


def test_when_every_output_is_cut_the_longest_seen_counts():
    assert of([], cut=[16] * 50).figures().mean == pytest.approx(16)


def test_a_change_of_traffic_is_followed():
    lengths = of([1000] * 5 * MEMORY)
    for _ in range(3 * MEMORY):
        lengths.add(10)
    assert lengths.figures().median == pytest.approx(10)


def test_empty_and_enormous_outputs_are_held():
    figures = of([0, 0, 1e9]).figures()
    assert figures.median == 0
    assert math.isfinite(figures.mean)


def test_weights_are_scaled_down_before_they_overflow():
    lengths = of([100])
    for _ in range(40 * MEMORY):
        lengths.add(100)
    assert lengths.figures().mean == pytest.approx(100)
    assert lengths.count == 40 * MEMORY + 1


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), min_size=1, max_size=60))
def test_a_dump_restores_the_same_figures(observations):
    lengths = Lengths()
    for value, cut in observations:
        lengths.add(value, cut)
    restored = Lengths.restore(json.loads(json.dumps(lengths.dump())))
    assert restored.figures() == lengths.figures()
    assert restored.count == lengths.count


@given(st.lists(st.tuples(st.floats(0, 1e6), st.booleans()), min_size=1, max_size=60))
def test_figures_stay_within_what_was_seen(observations):
    lengths = Lengths()
    for value, cut in observations:
        lengths.add(value, cut)
    figures = lengths.figures()
    seen = [value for value, _ in observations]
    assert min(seen) - 1e-6 <= figures.mean <= max(seen) + 1e-6 * max(seen) + 1e-6
    assert min(seen) - 1e-6 <= figures.median <= max(seen) + 1e-6 * max(seen) + 1e-6
    assert figures.spread >= 0


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"count": 1, "weight": float("nan"), "bins": {}},
        {"count": 1, "weight": 1, "bins": {"9999": [1, 0, 1]}},
        {"count": 1, "weight": 1, "bins": {"3": [-1, 0, 1]}},
        {"count": 1, "weight": 1, "bins": {"3": [1]}},
    ],
)
def test_a_damaged_dump_is_refused(state):
    with pytest.raises((ValueError, KeyError, TypeError)):
        Lengths.restore(state)
