"""`lua/tokenweir/core/identity.lua`."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.pointers import points_in
from tests.unit.lua.readers import CORE


@given(st.text())
def test_an_identity_is_a_whole_number_that_a_double_holds(text: str) -> None:
    number = CORE.identity(text)
    assert 1 <= number < 2**52
    assert number == int(number)
    assert CORE.identity(text) == number


def test_identities_of_names_that_are_much_alike_differ() -> None:
    names = [f"key-{k}" for k in range(20_000)] + ["a" * k for k in range(1, 200)]
    assert len({CORE.identity(name) for name in names}) == len(names)


def test_identities_fill_the_sets_of_a_table_evenly() -> None:
    sets = 1024
    filled = {int(CORE.identity(f"tenant/{k}")) % sets for k in range(10 * sets)}
    assert len(filled) > 0.99 * sets


def test_the_seed_tells_parts_in_a_row_apart() -> None:
    of = CORE.require("tokenweir.core.identity").of
    text = points_in(CORE.script)(b"abcd")
    assert len({of(text, 0, 4, seed) for seed in (0, 1, 2**32, 2**51)}) == 4
