"""`lua/tokenweir/core/cost.lua`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.fleets import COST, backend, snapshot, to_lua
from tests.unit.lua.views import View


def completion(view: View, index: int, **members: Any) -> float:
    """ms until a request of these members is complete there."""
    own = to_lua(view.lua, {})
    view.require("tokenweir.core.demand").measure(view.request(**members), own)
    return float(view.require("tokenweir.core.cost").completion(view.view, index, own))


def test_it_is_prefill_ahead_own_prefill_and_own_output_at_the_speed_of_then(lua: Any) -> None:
    view = View(lua, snapshot(backend("a")))
    view.hold(1, prompt=1000, mean=200)
    n, future = 2, 1000 + 500 + (200 + 100) / 2
    step = COST["base"] + COST["per_sequence"] * n + COST["per_kv_token"] * future
    expected = (1000 + 500) * COST["prefill"] + 100 * step
    assert completion(view, 1, prompt=500, mean=100) == pytest.approx(expected * (1 + 0.02 * n))


def test_prompts_that_are_processed_no_longer_stand_ahead(lua: Any) -> None:
    view = View(lua, snapshot(backend("a")))
    r = view.hold(1, prompt=1000, mean=200)
    before = completion(view, 1)
    view.load_module.first_token(view.loads[1], r)
    assert completion(view, 1) == pytest.approx(before - 1000 * COST["prefill"] * (1 + 0.02 * 2))


def test_what_a_backend_has_of_the_prompt_costs_no_prefill_there(lua: Any) -> None:
    view = View(lua, snapshot(backend("a"), backend("b")))
    view.cache({1: 400})
    own = completion(view, 1, prompt=500)
    other = completion(view, 2, prompt=500)
    assert other - own == pytest.approx(400 * COST["prefill"] * 1.02)


def test_a_weight_of_two_halves_the_cost(lua: Any) -> None:
    view = View(lua, snapshot(backend("a"), backend("b", weight=2)))
    assert completion(view, 1) == pytest.approx(2 * completion(view, 2))


def test_a_backend_that_fails_half_of_its_requests_costs_twice(lua: Any) -> None:
    view = View(lua, snapshot(backend("a"), backend("b")))
    view.set("error_rate", 2, 0.5)
    assert completion(view, 2) == pytest.approx(2 * completion(view, 1))


def test_the_cost_stays_finite_where_everything_fails(lua: Any) -> None:
    view = View(lua, snapshot(backend("a"), backend("b")))
    view.set("error_rate", 2, 1)
    assert completion(view, 2) == pytest.approx(10 * completion(view, 1))


def test_in_flight_counts_by_how_long_the_backend_takes(lua: Any) -> None:
    view = View(lua, snapshot(backend("a"), backend("slow", cost={k: v * 4 for k, v in COST.items()})))
    own = to_lua(lua, {"n": 1})
    inflight = view.require("tokenweir.core.cost").inflight
    assert inflight(view.view, 2, own) == pytest.approx(4 * inflight(view.view, 1, own))
