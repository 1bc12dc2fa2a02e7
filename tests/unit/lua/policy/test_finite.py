"""No finite input makes a policy reckon with something that is no number."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.lua.fleets import backend, snapshot, to_lua
from tests.unit.lua.views import View
from tokenweir.contract.records import Policy
from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()


def up_to(most: float) -> st.SearchStrategy[float]:
    """A number of 0 to `most`, bounds included."""
    return st.one_of(st.sampled_from([0.0, most]), st.floats(0, most))


BACKEND = st.fixed_dictionaries(
    {
        "weight": st.floats(1e-300, 1e6),
        "admit": st.floats(0, 1),
        "memory": st.one_of(st.none(), st.floats(0, 1)),
        "capacity": st.one_of(st.none(), st.integers(1, 10**12)),
        "concurrency": st.one_of(st.none(), st.integers(1, 10**6)),
        "low": st.floats(0, 1000),
        "high": st.floats(0, 1000),
        "cost": st.fixed_dictionaries(
            {
                "prefill": st.floats(1e-300, 1e4),
                "base": st.floats(1e-300, 1e5),
                "per_sequence": up_to(1e4),
                "per_kv_token": up_to(1e2),
            }
        ),
    }
)
NUMBER = st.one_of(st.none(), st.floats(), st.integers(-(10**15), 10**15))
REQUEST = st.fixed_dictionaries(
    {"n": NUMBER, "prompt": NUMBER, "mean": NUMBER, "sd": NUMBER, "max_tokens": NUMBER}
)


@settings(max_examples=100, deadline=None)
@given(
    backends=st.lists(BACKEND, min_size=1, max_size=4),
    requests=st.lists(REQUEST, min_size=1, max_size=6),
    foreign=st.tuples(NUMBER, NUMBER, NUMBER),
)
def test_every_policy_picks_or_says_full_and_every_cost_is_a_number(
    backends: list[dict[str, Any]], requests: list[dict[str, Any]], foreign: tuple[Any, Any, Any]
) -> None:
    view = View(RUNTIME, snapshot(*[backend(f"b{k}") | b for k, b in enumerate(backends)]))
    view.load_module.add_foreign(view.loads[1], *foreign)
    cost = view.require("tokenweir.core.backend.cost")
    measure = view.require("tokenweir.core.backend.demand").measure
    view.cache({1: 300.0})
    for members in requests:
        for policy in Policy:
            index, reason = view.pick(policy.value, **members)
            assert index is not None or reason == "full"
        own = to_lua(RUNTIME, {})
        measure(view.request(**members), own)
        for index in range(1, view.fleet.size + 1):
            assert not math.isnan(cost.completion(view.view, index, own))
            assert not math.isnan(cost.inflight(view.view, index, own))
        view.hold(1, **members)


@pytest.mark.parametrize("policy", [policy.value for policy in Policy])
def test_an_idle_fleet_takes_every_request_at_once(policy: str) -> None:
    dear = {"prefill": 1e4, "base": 1e5, "per_sequence": 1e4, "per_kv_token": 1e2}
    view = View(
        RUNTIME,
        snapshot(
            backend("a", weight=1e-300, cost=dear), backend("b", weight=1e-300, capacity=None, concurrency=2)
        ),
    )
    for members in (
        {"prompt": math.nan},
        {"mean": math.inf},
        {"n": 0},
        {"prompt": 1e18, "sd": 1e18},
        {"max_tokens": -1},
    ):
        assert view.pick(policy, **members)[0] is not None, members
