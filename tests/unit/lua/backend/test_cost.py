"""`lua/tokenweir/core/backend/cost.lua`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.fleets import COST, backend, snapshot, to_lua
from tests.unit.lua.views import View


def completion(view: View, index: int, **members: Any) -> float:
    """ms until a request of these members is complete there."""
    own = to_lua(view.lua, {})
    view.require("tokenweir.core.backend.demand").measure(view.request(**members), own)
    return float(view.require("tokenweir.core.backend.cost").completion(view.view, index, own))


def step(n: float, kv: float) -> float:
    """ms of a decode step."""
    return COST["base"] + COST["per_sequence"] * n + COST["per_kv_token"] * kv


def test_it_is_prefill_ahead_own_prefill_and_own_output_at_the_speed_of_then(lua: Any) -> None:
    view = View(lua, snapshot(backend("a"), thresholds={"crowding": 0, "stall": 0}))
    view.hold(1, prompt=1000, mean=200)
    then, alone = step(2, 1000 + 500 + (200 + 100) / 2), step(1, 500 + 50)
    expected = (1000 + 500) * COST["prefill"] + 100 * then
    assert completion(view, 1, prompt=500, mean=100) == pytest.approx(expected * then / alone)


def test_alone_it_is_the_plain_time(lua: Any) -> None:
    view = View(lua, snapshot(backend("a")))
    expected = 500 * COST["prefill"] + 100 * step(1, 500 + 50)
    assert completion(view, 1, prompt=500, mean=100) == pytest.approx(expected * 1.02)


def test_requests_there_make_it_dearer_by_the_crowding_factor(lua: Any) -> None:
    costs = []
    for crowding in (0, 0.02):
        view = View(lua, snapshot(backend("a"), thresholds={"crowding": crowding, "stall": 0}))
        for _ in range(3):
            view.hold(1)
        costs.append(completion(view, 1))
    assert costs[1] == pytest.approx(costs[0] * (1 + 0.02 * 4))


def test_a_part_of_the_time_counts_for_which_its_prompt_holds_up_each_request_there(lua: Any) -> None:
    costs = []
    for stall in (0, 0.3):
        view = View(lua, snapshot(backend("a"), thresholds={"stall": stall}))
        for _ in range(3):
            view.hold(1)
        costs.append(completion(view, 1, prompt=500))
    assert costs[1] - costs[0] == pytest.approx(0.3 * 3 * 500 * COST["prefill"])


def test_what_a_prompt_holds_up_counts_by_the_speed_of_the_backend(lua: Any) -> None:
    fast = COST | {"base": COST["base"] / 4}
    costs = []
    for stall in (0, 0.3):
        view = View(lua, snapshot(backend("a"), backend("b", cost=fast), thresholds={"stall": stall}))
        for index in (1, 2):
            view.hold(index)
        costs.append([completion(view, index, prompt=500) for index in (1, 2)])
    slow, quick = (with_it - without for without, with_it in zip(*costs, strict=True))
    speeds = view.fleet.relative_speed
    assert quick / slow == pytest.approx(speeds[2] / speeds[1])
    assert speeds[2] > speeds[1]


def test_prompts_that_are_processed_no_longer_stand_ahead(lua: Any) -> None:
    view = View(lua, snapshot(backend("a"), thresholds={"crowding": 0}))
    r = view.hold(1, prompt=1000, mean=200)
    before = completion(view, 1, prompt=500, mean=100)
    view.load_module.first_token(view.loads[1], r)
    crowded = step(2, 1000 + 500 + (200 + 100) / 2) / step(1, 500 + 50)
    after = completion(view, 1, prompt=500, mean=100)
    assert before - after == pytest.approx(1000 * COST["prefill"] * crowded)


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
    inflight = view.require("tokenweir.core.backend.cost").inflight
    assert inflight(view.view, 2, own) == pytest.approx(4 * inflight(view.view, 1, own))
