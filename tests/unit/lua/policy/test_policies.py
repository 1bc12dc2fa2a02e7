"""`lua/tokenweir/core/policy/`: what every policy keeps, and what each of them is for."""

from __future__ import annotations

import random
from collections import Counter
from statistics import fmean
from typing import Any

import pytest

from tests.unit.lua.fleets import COST, backend, equal, snapshot
from tests.unit.lua.views import View
from tokenweir.contract.records import Policy, PolicySettings

POLICIES = [policy.value for policy in Policy]
WITH_ROOM = ["predictive", "least_inflight"]


class TestEvery:
    """What holds for each of them."""

    @pytest.mark.parametrize("name", POLICIES)
    def test_is_registered_by_its_name(self, lua: Any, name: str) -> None:
        view = View(lua, snapshot(*equal(1)))
        assert view.policy.get(name.encode()).name == name.encode()

    def test_an_unknown_name_is_refused(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(1)))
        assert view.policy.get(b"fastest") == (None, b"no policy is named 'fastest'")

    @pytest.mark.parametrize("name", POLICIES)
    def test_without_a_candidate_it_picks_none(self, lua: Any, name: str) -> None:
        view = View(lua, snapshot(*equal(2)))
        policy = view.policy.get(name.encode())
        answer = view.policy.pick(policy, view.view, view.request(), lua.table(), 0)
        assert answer == (None, b"none")

    @pytest.mark.parametrize("name", POLICIES)
    @pytest.mark.parametrize("size", [1, 2, 33, 200])
    def test_it_picks_among_the_candidates_only(self, lua: Any, name: str, size: int) -> None:
        view = View(lua, snapshot(*equal(2 * size, memory=0.5)))
        allowed = list(range(2, 2 * size + 1, 2))
        for _ in range(50):
            assert view.pick(name, *allowed)[0] in allowed

    @pytest.mark.parametrize("name", POLICIES)
    def test_equal_idle_backends_are_all_used(self, lua: Any, name: str) -> None:
        view = View(lua, snapshot(*equal(8, memory=0.5)))
        assert len({view.pick(name)[0] for _ in range(200)}) == 8

    def test_settings_default_to_those_of_the_contract(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(1)))
        assert {k.decode(): v for k, v in view.policy.settings(None).items()} == PolicySettings().model_dump()
        assert view.policy.settings(lua.table_from({b"z": 2.5})).z == 2.5


class TestHerding:
    """A hundred requests at one moment, on one snapshot, over eight equal backends."""

    @pytest.mark.parametrize("name", ["predictive", "least_inflight", "round_robin"])
    def test_no_backend_gets_more_than_one_and_a_half_times_its_share(self, lua: Any, name: str) -> None:
        shares = View(lua, snapshot(*equal(8, memory=0.3, capacity=54_000))).burst(name, 100)
        assert max(shares.values()) <= 1.5 * 100 / 8
        assert len(shares) == 8

    def test_requests_of_all_lengths_spread_by_number_and_by_tokens(self, lua: Any) -> None:
        requests, tokens = [], []
        for seed in range(20):
            view, rng = View(lua, snapshot(*equal(8, capacity=200_000)), seed), random.Random(seed)
            shares: Counter[int] = Counter()
            held: Counter[int] = Counter()
            for _ in range(100):
                asked = {"prompt": min(14_000, rng.lognormvariate(6.9, 0.98)), "mean": 210.0}
                index, _ = view.pick("predictive", **asked)
                assert index is not None
                view.hold(index, **asked)
                shares[index] += 1
                held[index] += round(asked["prompt"] + asked["mean"])
            requests.append(max(shares.values()) / (100 / 8))
            tokens.append(max(held.values()) / (held.total() / 8))
        assert fmean(requests) <= 1.5
        assert fmean(tokens) <= 1.5

    @pytest.mark.parametrize("name", ["least_conn", "hybrid"])
    def test_what_reads_only_telemetry_sends_all_to_the_one_that_looked_emptiest(
        self, lua: Any, name: str
    ) -> None:
        backends = [
            backend(
                f"b{i}",
                memory=memory,
                low=(100 - 100 * memory) * 1.2,
                high=(100 - 100 * memory) * 0.3,
            )
            for i, memory in enumerate([0.31, 0.3, 0.3, 0.29, 0.3, 0.31, 0.3, 0.3], start=1)
        ]
        shares = View(lua, snapshot(*backends)).burst(name, 100)
        assert shares == {4: 100}, "they fail by nature"


class TestRoom:
    """Memory is never overcommitted, and nobody waits for what cannot come."""

    @pytest.mark.parametrize("name", WITH_ROOM)
    def test_a_full_fleet_makes_a_request_wait(self, lua: Any, name: str) -> None:
        view = View(lua, snapshot(*equal(2)))
        for index in (1, 2):
            view.hold(index, prompt=14_300, mean=100)
        assert view.pick(name) == (None, "full")

    @pytest.mark.parametrize("name", WITH_ROOM)
    def test_the_only_one_with_room_is_found_among_many(self, lua: Any, name: str) -> None:
        view = View(lua, snapshot(*equal(200)))
        for index in range(1, 201):
            if index != 137:
                view.hold(index, prompt=14_300, mean=100)
        assert {view.pick(name)[0] for _ in range(20)} == {137}

    def test_a_backend_that_is_full_by_peak_is_passed_over_though_it_would_be_faster(self, lua: Any) -> None:
        fast = {k: v / 4 for k, v in COST.items()}
        view = View(lua, snapshot(backend("fast", cost=fast), backend("slow")))
        assert view.pick("predictive")[0] == 1
        for _ in range(10):
            view.hold(1, prompt=800, mean=900, sd=100)
        assert view.pick("predictive")[0] == 2

    def test_the_buckets_find_room_that_the_totals_do_not_show(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(1)))
        for _ in range(60):
            view.hold(1, prompt=20, mean=16, sd=4)
        for _ in range(10):
            view.hold(1, prompt=20, mean=1000, sd=100)
        # the short ones are gone before the long ones have grown
        assert view.pick("predictive", prompt=2000, mean=500, sd=100)[0] == 1

    def test_the_buckets_are_asked_for_only_where_the_totals_do_not_settle_it(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(2)))
        asked: list[int] = []
        view.view.fill_buckets = asked.append
        view.pick("predictive")
        assert asked == []
        for index in (1, 2):
            for _ in range(10):
                view.hold(index, prompt=500, mean=1000, sd=100)
        view.pick("predictive", mean=1000)
        assert asked != []

    def test_a_prompt_beyond_the_safety_share_waits_though_the_prediction_says_it_fits(
        self, lua: Any
    ) -> None:
        view = View(lua, snapshot(*equal(1)))
        view.hold(1, prompt=13_000, mean=1, sd=0)
        assert view.pick("predictive", prompt=1401, mean=1, sd=0) == (None, "full")
        assert view.pick("predictive", prompt=1400, mean=1, sd=0)[0] == 1

    @pytest.mark.parametrize("name", WITH_ROOM)
    def test_a_request_whose_tail_fits_nowhere_goes_to_the_emptiest(self, lua: Any, name: str) -> None:
        view = View(lua, snapshot(*equal(3)))
        view.hold(1, prompt=3000)
        view.hold(2, prompt=1000)
        view.hold(3, prompt=2000)
        assert view.pick(name, prompt=100, mean=20_000, sd=5000)[0] == 2

    def test_its_prompt_must_have_room_all_the_same(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(2)))
        r = view.hold(1, prompt=8000)
        view.hold(2, prompt=9000)
        assert view.pick("predictive", prompt=14_000) == (None, "full")
        view.load_module.release(view.loads[1], r)
        assert view.pick("predictive", prompt=14_000)[0] == 1

    def test_a_prompt_beyond_every_backend_goes_at_once_for_the_engine_to_refuse(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(2)))
        view.hold(1, prompt=8000)
        assert view.pick("predictive", prompt=17_000)[0] == 2

    def test_what_fits_the_largest_backend_waits_for_it(self, lua: Any) -> None:
        view = View(lua, snapshot(backend("small", capacity=4000), backend("large")))
        view.hold(2, prompt=13_000)
        assert view.pick("predictive", prompt=6000) == (None, "full")

    @pytest.mark.parametrize("name", WITH_ROOM)
    def test_an_engine_that_tells_no_capacity_is_bounded_by_its_concurrency(
        self, lua: Any, name: str
    ) -> None:
        view = View(lua, snapshot(backend("a", capacity=None, concurrency=3)))
        assert view.burst(name, 3) == {1: 3}
        assert view.pick(name) == (None, "full")

    def test_an_idle_engine_takes_more_choices_than_its_concurrency(self, lua: Any) -> None:
        view = View(lua, snapshot(backend("a", capacity=None, concurrency=3)))
        assert view.pick("predictive", n=8)[0] == 1

    def test_an_engine_of_which_nothing_is_known_is_not_bounded(self, lua: Any) -> None:
        view = View(lua, snapshot(backend("a", capacity=None)))
        assert view.burst("predictive", 500) == {1: 500}


class TestPredictive:
    """Least own completion time."""

    def test_a_faster_backend_gets_more(self, lua: Any) -> None:
        fast = {k: v / 2 for k, v in COST.items()}
        slow = {k: v / 0.3 for k, v in COST.items()}
        view = View(
            lua,
            snapshot(
                backend("fast", cost=fast, capacity=100_000),
                backend("normal", capacity=100_000),
                backend("slow", cost=slow, capacity=100_000),
            ),
        )
        shares = view.burst("predictive", 60)
        assert shares[1] > shares[2] > shares[3]

    def test_the_backend_that_has_the_prompt_wins_by_its_cache_until_it_is_too_loaded(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(8, capacity=100_000)))
        view.cache({5: 2900})
        assert {view.pick("predictive", prompt=3000)[0] for _ in range(20)} == {5}
        for _ in range(12):
            view.hold(5)
        assert view.pick("predictive", prompt=3000)[0] != 5

    def test_beyond_the_limit_who_has_the_prompt_is_among_those_drawn(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(300, capacity=100_000)))
        view.cache({250: 2900})
        assert {view.pick("predictive", prompt=3000)[0] for _ in range(50)} == {250}

    def test_a_backend_that_fails_fast_does_not_attract(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(4, capacity=100_000)))
        view.set("error_rate", 3, 0.9)
        for index in (1, 2, 4):
            for _ in range(5):
                view.hold(index)
        assert 3 not in {view.pick("predictive")[0] for _ in range(50)}

    def test_in_a_large_fleet_gateways_that_see_the_same_do_not_choose_the_same(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(300, capacity=100_000)))
        for index in range(2, 301):
            view.hold(index)
        chosen = Counter(view.pick("predictive")[0] for _ in range(200))
        assert chosen[1] < 40, "the one idle backend is drawn in about one of nineteen picks"


class TestLeastConn:
    """Least memory in use."""

    def test_the_least_memory_wins(self, lua: Any) -> None:
        view = View(lua, snapshot(*[backend(f"b{m}", memory=m / 10) for m in (5, 2, 7)]))
        assert view.pick("least_conn")[0] == 2

    def test_a_backend_without_telemetry_counts_as_the_average(self, lua: Any) -> None:
        view = View(lua, snapshot(backend("a", memory=0.2), backend("unknown"), backend("c", memory=0.6)))
        assert view.pick("least_conn")[0] == 1
        assert view.pick("least_conn", 2, 3)[0] in (2, 3)
        assert view.pick("least_conn", 1, 2, 3)[0] == 1

    def test_without_any_telemetry_the_fewest_in_flight(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(3)))
        view.hold(1)
        view.hold(3)
        assert {view.pick("least_conn")[0] for _ in range(20)} == {2}

    @pytest.mark.parametrize("name", ["least_conn", "hybrid"])
    def test_a_stale_snapshot_makes_it_least_in_flight(self, lua: Any, name: str) -> None:
        view = View(lua, snapshot(backend("a", memory=0.1, high=27.0), backend("b", memory=0.9, high=3.0)))
        assert view.pick(name)[0] == 1
        view.view.stale = True
        view.hold(1)
        assert view.pick(name)[0] == 2


class TestHybrid:
    """The score of the class."""

    def test_the_score_of_the_requests_class_decides(self, lua: Any) -> None:
        view = View(
            lua,
            snapshot(
                backend("a", memory=0.5, low=60.0, high=10.0), backend("b", memory=0.5, low=50.0, high=15.0)
            ),
        )
        assert view.pick("hybrid", **{"class": "low"})[0] == 1
        assert view.pick("hybrid", **{"class": "high"})[0] == 2


class TestRoundRobin:
    """Each in its turn."""

    def test_every_backend_has_one_turn_in_each_round(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(5)))
        picks = [view.pick("round_robin")[0] for _ in range(50)]
        for start in range(0, 50, 5):
            assert sorted(x for x in picks[start : start + 5] if x) == [1, 2, 3, 4, 5]

    def test_turns_outlive_a_snapshot(self, lua: Any) -> None:
        first = View(lua, snapshot(*equal(4)))
        picks = [first.pick("round_robin")[0] for _ in range(2)]
        second = View(lua, snapshot(*equal(4)))
        picks += [second.pick("round_robin")[0] for _ in range(2)]
        assert sorted(x for x in picks if x) == [1, 2, 3, 4]

    def test_a_weight_of_three_has_three_turns(self, lua: Any) -> None:
        view = View(lua, snapshot(backend("a", weight=3), backend("b")))
        assert Counter(view.pick("round_robin")[0] for _ in range(400))[1] == pytest.approx(300, abs=2)

    def test_who_was_away_does_not_catch_up(self, lua: Any) -> None:
        view = View(lua, snapshot(*equal(2)))
        view.pick("round_robin", 1, 2)
        for _ in range(100):
            view.pick("round_robin", 1)
        assert Counter(view.pick("round_robin")[0] for _ in range(10))[2] <= 6
