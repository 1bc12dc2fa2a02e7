"""`lua/tokenweir/core/prediction/running.lua`."""

from __future__ import annotations

import math
import random
import statistics
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.fleets import to_lua
from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()
RUNNING = RUNTIME.eval(b'require "tokenweir.core.prediction.running"')


def predict(
    stats: dict[str, Any] | None = None,
    max_tokens: float | None = None,
    threshold: float = 50,
    prior: float | None = None,
) -> dict[str, Any]:
    """The prediction as a dict."""
    out = RUNTIME.table()
    RUNNING.predict(to_lua(RUNTIME, stats), max_tokens, threshold, prior, out)
    return {key.decode(): value for key, value in out.items()}


def lognormal(median: float, spread: float, count: int = 10**6) -> dict[str, Any]:
    """The figures of a model whose lengths are lognormal (of 1 + tokens)."""
    return {
        "count": count,
        "median": median,
        "spread": spread,
        "mean": (1 + median) * math.exp(spread**2 / 2) - 1,
    }


def test_the_mean_and_quantile_are_those_of_the_lognormal() -> None:
    p = predict(lognormal(129, 0.85))
    assert p["median"] == pytest.approx(129, rel=1e-3)
    assert p["mean"] == pytest.approx(130 * math.exp(0.85**2 / 2) - 1, rel=1e-3)
    assert p["q90"] == pytest.approx(130 * math.exp(1.2816 * 0.85) - 1, rel=1e-3)
    assert p["sd"] == pytest.approx(130 * math.exp(0.85**2 / 2) * math.sqrt(math.exp(0.85**2) - 1), rel=1e-3)


@pytest.mark.parametrize("limit", [16, 100, 256, 1000])
def test_a_limit_cuts_the_lengths_before_they_are_averaged(limit: int) -> None:
    rng = random.Random(7)
    lengths = [min(limit, rng.lognormvariate(math.log(130), 0.85) - 1) for _ in range(100_000)]
    p = predict(lognormal(129, 0.85), max_tokens=limit)
    assert p["mean"] == pytest.approx(statistics.fmean(lengths), rel=0.02)
    assert p["sd"] == pytest.approx(statistics.pstdev(lengths), rel=0.05, abs=0.05)
    assert p["q90"] <= limit
    assert p["median"] <= limit


def test_a_measured_mean_below_the_lognormals_narrows_it() -> None:
    heavy = lognormal(129, 0.85)
    assert predict(heavy | {"mean": 160.0})["mean"] == pytest.approx(160, rel=0.01)


def test_nothing_known_gives_the_prior() -> None:
    p = predict()
    assert p["median"] == pytest.approx(129)
    assert p["mean"] == pytest.approx(130 * math.exp(0.85**2 / 2) - 1, rel=1e-6)
    assert p["class"] == b"high"


def test_a_configured_prior_replaces_the_built_in_one() -> None:
    assert predict(prior=20)["median"] == pytest.approx(20)
    assert predict(prior=20)["class"] == b"low"


def test_few_completions_move_the_prediction_a_little_and_many_fully() -> None:
    medians = [predict(lognormal(1000, 0.5, count))["median"] for count in (0, 3, 30, 3000, 10**7)]
    assert medians == sorted(medians)
    assert medians[1] < 400
    assert medians[-1] == pytest.approx(1000, rel=1e-3)


def test_the_class_is_that_of_the_median() -> None:
    assert predict(lognormal(49, 0.5))["class"] == b"low"
    assert predict(lognormal(51, 0.5))["class"] == b"high"
    assert predict(lognormal(300, 0.5), max_tokens=49)["class"] == b"low"
    assert predict(lognormal(51, 0.5), threshold=100)["class"] == b"low"


ANY = st.one_of(st.none(), st.floats(), st.floats(0, 1e6), st.integers(0, 10**15))


STATS = st.fixed_dictionaries({"count": ANY, "mean": ANY, "median": ANY, "spread": ANY})


@given(stats=STATS, max_tokens=ANY, prior=ANY)
def test_no_input_gives_a_figure_that_is_not_finite(stats: Any, max_tokens: Any, prior: Any) -> None:
    p = predict(stats, max_tokens, 50, prior)
    for name in ("mean", "median", "q90", "sd"):
        assert math.isfinite(p[name])
        assert p[name] >= 0
        if max_tokens is not None and max_tokens >= 0:
            assert p[name] <= max_tokens + 1e-6
    assert p["class"] in (b"low", b"high")
