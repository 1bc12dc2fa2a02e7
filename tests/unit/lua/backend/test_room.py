"""`lua/tokenweir/core/backend/room.lua`."""

from __future__ import annotations

import math
from typing import Any

import pytest

from tests.unit.lua.fleets import backend, snapshot, to_lua
from tests.unit.lua.views import View

BLOCK = 16


class Room:
    """What one backend has room for."""

    def __init__(self, lua: Any, **members: Any) -> None:
        self.view = View(lua, snapshot(backend("b1", **members)))
        self.room = self.view.require("tokenweir.core.backend.room")
        self.demand = self.view.require("tokenweir.core.backend.demand")

    def glance(self, **asked: Any) -> int:
        return int(self.room.glance(self.view.view, 1, self._measure(asked)))

    def fits(self, **asked: Any) -> bool:
        own = self._measure(asked)
        space = self.room.glance(self.view.view, 1, own)
        return bool(
            space == self.room.YES or (space != self.room.NO and self.room.fits(self.view.view, 1, own))
        )

    def _measure(self, asked: dict[str, Any]) -> Any:
        own = self.view.lua.table()
        self.demand.measure(to_lua(self.view.lua, {"n": 1, "sd": 0} | asked), own)
        return own


def test_the_margin_counts_against_the_capacity(lua: Any) -> None:
    margin = 2.0 * math.sqrt(100**2 + 10**2) + BLOCK
    asked = {"prompt": 100, "mean": 100, "sd": 100}
    assert Room(lua, capacity=math.ceil(200 + margin)).fits(**asked)
    assert not Room(lua, capacity=math.floor(200 + margin)).fits(**asked)


def test_every_sequence_may_leave_the_rest_of_a_block_unused(lua: Any) -> None:
    peak = 1000 + 10 + 10 + 11 * BLOCK
    for capacity, fits in ((math.ceil(peak / 1.1), True), (math.floor(peak / 1.1), False)):
        room = Room(lua, capacity=capacity, engine="vllm")
        for _ in range(10):
            room.view.hold(1, prompt=100, mean=1, sd=0)
        assert room.fits(prompt=9, mean=1) is fits


def test_an_engine_that_preempts_is_filled_up_without_a_margin_and_a_tenth_beyond(lua: Any) -> None:
    asked = {"prompt": 400, "mean": 500, "sd": 500}
    assert not Room(lua, capacity=1000).fits(**asked)
    assert Room(lua, capacity=1000, engine="vllm").fits(**asked)
    assert Room(lua, capacity=1000, engine="sglang").fits(**asked)
    assert not Room(lua, capacity=1000, engine="llamacpp").fits(**asked)
    for mean, fits in ((1100 - 400 - BLOCK, True), (1101 - 400 - BLOCK, False)):
        assert Room(lua, capacity=1000, engine="vllm").fits(prompt=400, mean=mean) is fits


def test_an_engine_that_preempts_is_not_filled_so_far_that_it_lets_nobody_in(lua: Any) -> None:
    room = Room(lua, capacity=10_000, engine="vllm")
    room.view.hold(1, prompt=9000, mean=1, sd=0)
    assert room.fits(prompt=700, mean=1)
    assert not room.fits(prompt=701, mean=1)


def test_an_engine_that_lets_requests_wait_takes_no_more_than_it_runs_whatever_is_predicted(lua: Any) -> None:
    room = Room(lua, capacity=100_000, engine="vllm", lets_in=2)
    assert room.fits(prompt=10, mean=10)
    for _ in range(2):
        room.view.hold(1, prompt=10, mean=10)
    assert not room.fits(prompt=10, mean=10)
    room.view.view.stale = True
    assert room.fits(prompt=10, mean=10), "what it said is long ago"


def test_the_lesser_of_the_configured_number_and_what_the_engine_lets_in_counts(lua: Any) -> None:
    for concurrency, lets_in in ((1, 5), (5, 1)):
        room = Room(lua, concurrency=concurrency, lets_in=lets_in)
        room.view.hold(1, prompt=10, mean=10)
        assert not room.fits(prompt=10, mean=10)


def test_an_idle_engine_that_lets_requests_wait_takes_one_of_many_choices(lua: Any) -> None:
    assert Room(lua, capacity=100_000, lets_in=1).fits(prompt=10, mean=10, n=4)


def test_what_is_held_stays_below_the_safety_share_whatever_is_predicted(lua: Any) -> None:
    room = Room(lua, capacity=1000)
    room.view.hold(1, prompt=800, mean=1, sd=0)
    assert room.fits(prompt=100, mean=1)
    assert not room.fits(prompt=101, mean=1)


def test_where_the_totals_do_not_settle_it_the_buckets_do(lua: Any) -> None:
    room = Room(lua, capacity=16_000)
    for _ in range(10):
        room.view.hold(1, prompt=1000, mean=8, sd=0)
    asked = {"prompt": 100, "mean": 4096}
    assert room.glance(**asked) == room.room.YES
    small = Room(lua, capacity=14_500)
    for _ in range(10):
        small.view.hold(1, prompt=1000, mean=8, sd=0)
    assert small.glance(**asked) == small.room.MAYBE, "held and remaining together exceed it"
    assert small.fits(**asked), "the short ones are gone when the long one is at its longest"


@pytest.mark.parametrize("held", [0, 5])
def test_a_limit_of_sequences_holds_but_an_idle_backend_takes_any_request(lua: Any, held: int) -> None:
    room = Room(lua, capacity=None, concurrency=6)
    for _ in range(held):
        room.view.hold(1)
    assert room.fits(n=1, prompt=10, mean=10)
    assert room.fits(n=8, prompt=10, mean=10) is (held == 0)


def test_a_backend_of_unknown_size_has_room(lua: Any) -> None:
    assert Room(lua, capacity=None).fits(prompt=10**6, mean=10**6)


class Held:
    """Several backends with requests on them."""

    def __init__(self, lua: Any, *backends: dict[str, Any]) -> None:
        self.view = View(lua, snapshot(*backends))
        self.room = self.view.require("tokenweir.core.backend.room")

    def soonest(self, kept: int | None = None, **asked: Any) -> int | None:
        request = self.view.request(**asked)
        candidates, count = self.view.candidates()
        found = self.room.soonest(self.view.view, candidates, count, request, kept)
        return None if found is None else int(found)


def test_the_backend_with_the_least_still_to_be_released_has_room_soonest(lua: Any) -> None:
    held = Held(lua, backend("b1", capacity=8000), backend("b2", capacity=8000))
    for index, count in ((1, 10), (2, 6)):
        for _ in range(count):
            held.view.hold(index)
    assert held.soonest(prompt=4000) == 2


def test_a_faster_backend_releases_sooner(lua: Any) -> None:
    fast = {"prefill": 0.01, "base": 2, "per_sequence": 0.02, "per_kv_token": 1e-6}
    slow = {"prefill": 0.1, "base": 50, "per_sequence": 0.5, "per_kv_token": 1e-4}
    held = Held(lua, backend("b1", capacity=6000, cost=slow), backend("b2", capacity=5900, cost=fast))
    for index in (1, 2):
        for _ in range(8):
            held.view.hold(index)
    assert held.soonest(prompt=4000) == 2


def test_the_one_that_was_chosen_is_kept(lua: Any) -> None:
    held = Held(lua, backend("b1", capacity=8000), backend("b2", capacity=8000))
    held.view.hold(1, prompt=7500)
    assert held.soonest() == 2
    assert held.soonest(kept=1) == 1


def test_where_only_a_number_is_known_it_counts_too(lua: Any) -> None:
    held = Held(lua, backend("b1", concurrency=2), backend("b2", concurrency=2))
    for index, count in ((1, 2), (2, 1)):
        for _ in range(count):
            held.view.hold(index)
    assert held.soonest() == 2
