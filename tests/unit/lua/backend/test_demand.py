"""`lua/tokenweir/core/backend/demand.lua`."""

from __future__ import annotations

import math
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.fleets import to_lua
from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()
MEASURE = RUNTIME.eval(b'require "tokenweir.core.backend.demand".measure')


def measure(**members: Any) -> dict[str, float]:
    """What a request of these members asks."""
    out = RUNTIME.table()
    MEASURE(to_lua(RUNTIME, members), out)
    return {key.decode(): value for key, value in out.items()}


def test_tokens_are_rounded_up_to_whole_ones() -> None:
    asked = measure(n=2, prompt=10.2, mean=99.5, sd=3)
    assert (asked["n"], asked["prompt"], asked["expected"], asked["remaining"]) == (2, 11, 100, 200)


def test_choices_of_one_prompt_err_together() -> None:
    assert measure(n=3, prompt=1, mean=10, sd=4)["variance"] == 12**2


def test_a_request_may_not_produce_more_than_its_max_tokens() -> None:
    asked = measure(n=1, prompt=1, mean=500, max_tokens=20)
    assert (asked["expected"], asked["most"]) == (20, 20)


def test_a_request_without_predictions_produces_at_least_one_token() -> None:
    assert measure(prompt=5)["remaining"] == 1


ANY_NUMBER = st.one_of(st.none(), st.floats(), st.integers(-(10**9), 10**18))


@given(n=ANY_NUMBER, prompt=ANY_NUMBER, mean=ANY_NUMBER, sd=ANY_NUMBER, max_tokens=ANY_NUMBER)
def test_whatever_is_passed_the_figures_are_whole_finite_and_bounded(**members: Any) -> None:
    for value in measure(**members).values():
        assert math.isfinite(value)
        assert value == int(value)
        assert 0 <= value <= 2**36
