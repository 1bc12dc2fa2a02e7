"""`lua/tokenweir/core/sessions/transfer.lua`: whether it pays to move a cache; what moves teach."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.fleets import COST, backend, snapshot, to_lua
from tests.unit.lua.views import View

GIB = 1024**3
HOW = {"adapter": "agent", "bandwidth": 10 * GIB, "latency_ms": 20, "limit_ms": 5000}
KV = {"kv_bytes": 131072}


class Moves:
    """A session that moves from b1 to b2, and the memory of transfers."""

    def __init__(self, lua: Any, source: dict[str, Any] | None = None, target: dict[str, Any] | None = None):
        self.lua = lua
        ends = backend("b1", **KV | (source or {})), backend("b2", **KV | (target or {}))
        self.view = View(lua, snapshot(*ends))
        self.module = self.view.require("tokenweir.core.sessions.transfer")
        self.memory = self.view.require("tokenweir.core.sessions.cache_memory").new()
        self.upstream = {1: "m", 2: "m"}
        self.now = 1_000_000.0

    def plan(self, ahead: float = 0, **changes: Any) -> Any:
        """(plan or None, why not); a prompt of 10,100 tokens of which b1 has 10,000 takes 0.06 ms a token."""
        how = HOW | {name: changes.pop(name) for name in list(changes) if name in HOW}
        r = {"place": 1, "moved_from": 0, "moved_tokens": 10_000, "reckoned": 0, "prompt": 10_100} | changes
        r["pool"] = {"upstream_of": self.upstream}
        found = self.module.plan(
            self.memory, self.view.fleet, to_lua(self.lua, r), to_lua(self.lua, how), ahead, self.now
        )
        plan, why = found if isinstance(found, tuple) else (found, b"")
        return plan, (why or b"").decode()

    def why_not(self, **changes: Any) -> str:
        plan, why = self.plan(**changes)
        assert plan is None
        return str(why)

    def expected(self, **changes: Any) -> float:
        plan, why = self.plan(**changes)
        assert plan, why
        return float(plan.expected_ms)


@pytest.fixture
def moves(lua: Any) -> Moves:
    return Moves(lua)


def test_a_transfer_is_weighed_by_its_bytes_against_the_prefill_that_it_saves(moves: Moves) -> None:
    plan, _ = moves.plan()
    assert (plan.target, plan.tokens, plan.bytes) == (1, 10_000, 10_000 * 131072)
    assert plan.expected_ms == pytest.approx(20 + 1000 * 10_000 * 131072 / (10 * GIB))
    assert plan.anew_ms == pytest.approx(600)


def test_a_request_waits_no_longer_than_the_prefill_takes_nor_than_the_limit(moves: Moves) -> None:
    assert moves.plan()[0].most_ms == pytest.approx(600)
    assert moves.plan(limit_ms=250)[0].most_ms == 250


def test_over_a_slow_link_it_does_not_pay(moves: Moves) -> None:
    assert moves.why_not(bandwidth=GIB) == "not_worth"


def test_where_both_take_about_as_long_the_prompt_is_computed_anew(moves: Moves) -> None:
    even = 10_000 * 131072 / ((600 - 20) / 1000)
    assert moves.why_not(bandwidth=even) == "not_worth"
    assert moves.plan(bandwidth=1.3 * even)[0]


def test_a_short_prompt_is_not_worth_the_latency(moves: Moves) -> None:
    assert moves.why_not(moved_tokens=300, prompt=400) == "not_worth"


def test_what_the_new_backend_has_already_is_not_saved(moves: Moves) -> None:
    assert moves.plan(reckoned=4000)[0].anew_ms == pytest.approx(360)
    assert moves.why_not(reckoned=9_900) == "not_worth"
    assert moves.why_not(reckoned=10_000) == "not_worth"


@pytest.mark.parametrize(
    ("source", "target"),
    [
        ({"kv_bytes": None}, {}),
        ({}, {"kv_bytes": None}),
        ({"kv_bytes": 65536}, {}),
        ({"precision": "fp8"}, {}),
        ({"state": "down"}, {}),
        ({"state": "starting"}, {}),
    ],
)
def test_between_these_none_is_possible(lua: Any, source: dict[str, Any], target: dict[str, Any]) -> None:
    assert Moves(lua, source, target).why_not() == "impossible"


def test_nor_between_different_models_of_one_name_nor_from_a_backend_that_has_gone(moves: Moves) -> None:
    assert moves.why_not(moved_from=7) == "impossible"
    moves.upstream = {1: "m", 2: "m-awq"}
    assert moves.why_not() == "impossible"


def test_a_backend_that_drains_still_gives_its_caches(lua: Any) -> None:
    assert Moves(lua, {"state": "draining"}).plan()[0]


class TestRemotePrefill:
    """`vllm`: the old engine computes what it lacks, the new one nothing."""

    def test_the_old_engine_s_own_work_counts(self, lua: Any) -> None:
        moves = Moves(lua, {"cost": COST | {"prefill": 0.1}})
        base = 20 + 1000 * 10_100 * 131072 / (10 * GIB)
        assert moves.expected(adapter="vllm", ahead=50) == pytest.approx(base + 50 + 100 * 0.1)

    def test_and_where_it_is_busy_it_does_not_pay(self, moves: Moves) -> None:
        assert moves.plan(adapter="vllm", ahead=100)[0].anew_ms == pytest.approx(606)
        assert moves.why_not(adapter="vllm", ahead=400) == "not_worth"


class TestLearning:
    """What transfers took, and what failed."""

    def test_it_follows_what_transfers_to_a_backend_took(self, moves: Moves) -> None:
        first = moves.expected()
        for _ in range(30):
            moves.module.done(moves.memory, moves.plan()[0], first / 4, moves.now)
        assert moves.expected() == pytest.approx(first / 4, rel=0.02)
        for _ in range(30):
            moves.module.done(moves.memory, moves.plan()[0], 1.5 * first, moves.now)
        assert moves.expected() == pytest.approx(1.5 * first, rel=0.02)

    def test_the_old_engine_s_own_work_is_not_taken_for_the_link_s(self, moves: Moves) -> None:
        for _ in range(30):
            plan, _ = moves.plan(adapter="vllm", ahead=100)
            moves.module.done(moves.memory, plan, plan.base_ms + plan.ahead_ms, moves.now)
        assert moves.module.slowness(moves.memory, 1, moves.now) == pytest.approx(1)

    def test_slowness_is_forgotten_so_that_it_is_tried_again(self, moves: Moves) -> None:
        plan, _ = moves.plan()
        for _ in range(30):
            moves.module.done(moves.memory, plan, 1000, moves.now)
        assert moves.why_not() == "not_worth"
        moves.now += 10 * 60_000
        assert moves.plan()[0]

    def test_after_a_failure_nobody_asks_for_a_while_and_after_more_for_longer(self, moves: Moves) -> None:
        rests = []
        for _ in range(12):
            moves.module.failed(moves.memory, moves.plan()[0], moves.now)
            began = moves.now
            while moves.plan()[1] == "resting":
                moves.now += 500
            rests.append((moves.now - began) / 1000)
        assert rests == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]

    def test_one_that_is_done_ends_that(self, moves: Moves) -> None:
        for _ in range(3):
            moves.module.failed(moves.memory, moves.plan()[0], moves.now)
            moves.now += 10_000
        moves.module.done(moves.memory, moves.plan()[0], 100, moves.now)
        moves.module.failed(moves.memory, moves.plan()[0], moves.now)
        moves.now += 1000
        assert moves.plan()[0]

    def test_a_late_one_counts_as_slow_and_as_a_failure(self, moves: Moves) -> None:
        first = moves.expected()
        moves.module.late(moves.memory, moves.plan()[0], 600, moves.now)
        assert moves.why_not() == "resting"
        moves.now += 1000
        assert moves.expected() > 2 * first

    def test_another_backend_is_not_held_to_that(self, moves: Moves) -> None:
        moves.module.failed(moves.memory, moves.plan()[0], moves.now)
        assert moves.plan(place=0, moved_from=1)[0]

    def test_a_backend_whose_engine_is_new_is_asked_again(self, moves: Moves) -> None:
        moves.module.failed(moves.memory, moves.plan()[0], moves.now)
        moves.view.require("tokenweir.core.sessions.cache_memory").lose(moves.memory, 1)
        assert moves.plan()[0]
