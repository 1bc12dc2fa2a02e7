"""`lua/tokenweir/core/sessions/ring.lua`: where sessions have their places."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

RUNTIME = new_runtime()
PLACES = 4000
NAMES = st.lists(st.text("abcdef0123456789-.", min_size=1, max_size=12), min_size=2, max_size=12, unique=True)


class Ring:
    """A ring of named members, asked in Python's terms."""

    def __init__(self, names: Sequence[str], budget: int | None = None, lua: Any = RUNTIME) -> None:
        self.names = list(names)
        module = lua.eval(b'require "tokenweir.core.sessions.ring"')
        self.module = module[0] if isinstance(module, tuple) else module
        self.new = lua.eval(b"function(size) return require('ffi').new('double[?]', size) end")
        self.write = lua.eval(b"function(array, i, value) array[i] = value end")
        given_names = lua.table_from([name.encode() for name in names])
        if budget is None:
            self.ring = self.module.build(given_names, len(names))
        else:
            build = self.module.begin(given_names, len(names))
            self.steps, self.ring = 0, None
            while self.ring is None:
                self.ring = self.module.step(build, budget)
                self.steps += 1

    def homes(self, weights: dict[str, float] | None = None, count: int = PLACES, seed: int = 1) -> list[str]:
        """The members of so many sessions; their hashes depend on the seed only."""
        values = [1.0 if weights is None else weights.get(name, 1.0) for name in self.names]
        array = self.new(len(values) + 1)
        for k, value in enumerate(values, 1):
            self.write(array, k, value)
        rng = random.Random(seed)
        found = []
        for _ in range(count):
            x = self.module.position(rng.getrandbits(32) - 2**31, rng.getrandbits(32) - 2**31)
            member = self.module.find(self.ring, x, array, max(values))
            found.append(self.names[member - 1] if member else "")
        return found


def backends(count: int) -> list[str]:
    return [f"gpu-{k}" for k in range(count)]


@settings(max_examples=25, deadline=None)
@given(names=NAMES, data=st.data())
def test_the_order_in_which_members_are_named_does_not_matter(names: list[str], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(names))
    assert Ring(names).homes(count=500) == Ring(shuffled).homes(count=500)


@settings(max_examples=25, deadline=None)
@given(names=NAMES, data=st.data())
def test_removing_a_member_moves_its_own_sessions_and_no_others(
    names: list[str], data: st.DataObject
) -> None:
    gone = data.draw(st.sampled_from(names))
    before, after = Ring(names).homes(), Ring([name for name in names if name != gone]).homes()
    moved = {old for old, new in zip(before, after, strict=True) if old != new}
    assert moved == {gone} & set(before)


@settings(max_examples=25, deadline=None)
@given(names=NAMES)
def test_adding_a_member_moves_sessions_to_it_only(names: list[str]) -> None:
    before, after = Ring(names[1:]).homes(), Ring(names).homes()
    assert {new for old, new in zip(before, after, strict=True) if old != new} <= {names[0]}


@settings(max_examples=25, deadline=None)
@given(names=NAMES, factor=st.floats(0.1, 10))
def test_a_changed_weight_moves_sessions_to_or_from_that_member_only(names: list[str], factor: float) -> None:
    ring = Ring(names)
    moved = [
        (old, new)
        for old, new in zip(ring.homes(), ring.homes({names[0]: factor}), strict=True)
        if old != new
    ]
    assert all((new if factor > 1 else old) == names[0] for old, new in moved)


@settings(max_examples=10, deadline=None)
@given(names=NAMES, scale=st.floats(1e-6, 1e6))
def test_only_the_ratio_of_weights_counts(names: list[str], scale: float) -> None:
    ring = Ring(names)
    weights = {name: 1.0 + k % 3 for k, name in enumerate(names)}
    assert ring.homes(weights, 500) == ring.homes({name: w * scale for name, w in weights.items()}, 500)


def test_the_sessions_of_a_removed_member_spread_over_all_others_by_their_weight() -> None:
    names = backends(9)
    before, after = Ring(names).homes(count=40_000), Ring(names[1:]).homes(count=40_000)
    heirs = Counter(new for old, new in zip(before, after, strict=True) if old == names[0])
    fair = sum(heirs.values()) / 8
    assert set(heirs) == set(names[1:])
    assert all(0.5 * fair < share < 1.6 * fair for share in heirs.values())


@pytest.mark.parametrize("count", [2, 3, 8, 64, 256])
@pytest.mark.parametrize("heavy", [1.0, 2.5, 8.0])
def test_shares_are_within_thirty_percent_of_the_weights(count: int, heavy: float) -> None:
    names = backends(count)
    weights = {name: heavy if k % 3 == 0 else 1.0 for k, name in enumerate(names)}
    sessions = 2000 * count if count > 8 else 40_000
    shares = Counter(Ring(names).homes(weights, count=sessions))
    fair = sessions / sum(weights.values())
    assert max(abs(shares[name] / (fair * weights[name]) - 1) for name in names) <= 0.30


def test_two_hosts_and_every_way_of_building_it_agree() -> None:
    names = backends(300)
    at_once = Ring(names).homes()
    in_slices = Ring(names, budget=1000)
    assert in_slices.steps > 100
    assert in_slices.homes() == at_once
    assert Ring(names, lua=new_runtime()).homes() == at_once


def test_a_slice_costs_no_more_than_its_budget() -> None:
    names = backends(256)
    whole = Ring(names, budget=10**9).steps
    assert whole == 1
    assert Ring(names, budget=51_200).steps >= 4


def test_nobody_is_found_where_nobody_takes_part() -> None:
    names = backends(3)
    assert set(Ring(names).homes(dict.fromkeys(names, 0.0), 50)) == {""}
    assert set(Ring(names).homes({"gpu-0": 0.0, "gpu-2": 0.0}, 50)) == {"gpu-1"}


def test_places_do_not_change_from_release_to_release() -> None:
    assert "".join(name[-1] for name in Ring(backends(8)).homes(count=24)) == "225365725201077674172502"
