"""`lua/tokenweir/core/queue/expect.lua` and `wait.lua`: position and wait."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.queue.queues import LUA, MEMORY, QUEUE, Queues, settings

WAIT = LUA.eval(b'require "tokenweir.core.queue.wait"')
SET = LUA.eval(b"function(struct, name, value) struct[name] = value end")
USUAL = 1.1
"""What is added to a reckoned wait before anything was learned of such waits."""


def fill(struct: Any, **values: float) -> None:
    """Writes members of a struct."""
    for name, value in values.items():
        SET(struct, name.encode(), value)


def served_every(queues: Queues, ms: float, count: int) -> None:
    """Serves so many, one in `ms`, and measures as the pilot does."""
    for _ in range(count):
        queues.serve(passed=ms)
        some = next(iter(queues.waiters))
        queues.expect(some)


def measured() -> Queues:
    """A queue that was served 100 tokens in 50 ms, and where nobody has waited for 5 s since."""
    queues = Queues(order="fifo")
    for k in range(200):
        queues.push(str(k), work=100)
    served_every(queues, 50, 199)
    queues.drain()
    queues.now += 5000
    return queues


def test_the_position_counts_who_stands_before_in_the_order() -> None:
    queues = Queues()
    for name, work in (("c", 300), ("a", 100), ("b", 200)):
        queues.push(name, work=work)
    assert [queues.expect(name)[0] for name in "abc"] == [1, 2, 3]


def test_nothing_is_said_of_the_wait_while_no_rate_is_known() -> None:
    queues = Queues()
    queues.push("a")
    assert queues.expect("a") == (1, None, None)


def test_the_wait_is_the_work_ahead_over_the_rate_of_release() -> None:
    queues = Queues(order="fifo")
    for k in range(300):
        queues.push(str(k), work=100)
    served_every(queues, 50, 200)
    position, ms, most = queues.expect("299")
    assert position == 100
    assert ms == pytest.approx(USUAL * 100 * 50, rel=0.1)
    assert most is None


@pytest.mark.parametrize("order", ["fifo", "fair"])
def test_one_has_to_have_time_for_its_wait_once_the_rate_is_measured(order: str) -> None:
    queues = Queues(order=order)
    for k in range(300):
        queues.push(str(k), work=100)
    assert queues.at_least("299", 1000) is None
    served_every(queues, 50, 200)
    assert queues.at_least("299", 1000) == 1000
    assert queues.at_least("299", None) is None


@pytest.mark.parametrize("weight", [1, 3])
def test_one_that_floods_has_to_have_time_for_a_fifth_more(weight: float) -> None:
    queues = Queues()
    for k in range(300):
        queues.push(str(k), work=100, flow="flood", weight=weight)
        if k % 10 == 0:
            queues.push(f"other-{k}", work=100, flow="others", weight=weight)
    served_every(queues, 50, 200)
    queues.push("late", work=100, weight=weight)
    assert queues.at_least("299", 1000) == pytest.approx(1200)
    assert queues.at_least("late", 1000) == 1000


def test_flows_that_have_equally_many_waiting_flood_not() -> None:
    queues = Queues()
    for k in range(300):
        queues.push(str(k), work=100, flow=f"flow-{k % 3}")
    served_every(queues, 50, 200)
    assert [queues.at_least(str(k), 1000) for k in (297, 298, 299)] == [1000, 1000, 1000]


def test_nobody_is_told_more_than_it_may_wait_and_the_whole_wait_stays_known() -> None:
    queues = Queues(order="fifo")
    for k in range(299):
        queues.push(str(k), work=100)
    queues.push("299", work=100, allowed=12_000)
    served_every(queues, 50, 200)
    assert queues.now < 12_000
    left = 12_000 + 1300 - queues.now
    _, ms, _, whole = queues.expect_whole("299")
    assert ms == pytest.approx(left)
    assert whole == pytest.approx(USUAL * 100 * 50, rel=0.1)
    queues.now += 20_000
    _, ms, _, whole = queues.expect_whole("299")
    assert ms == 0
    assert whole is not None and whole > 0


def test_low_priority_is_told_no_range_beyond_what_it_may_wait() -> None:
    queues = Queues(low=(1, 0.01))
    for k in range(300):
        queues.push(str(k), work=100, priority="high", flow=f"f{k}")
    queues.push("low", work=1000, priority="low", allowed=30_000)
    served_every(queues, 50, 200)
    _, ms, most, whole = queues.expect_whole("low")
    assert ms is not None and most is not None and whole is not None
    assert ms <= most <= 30_000


def test_the_rate_follows_what_changes() -> None:
    queues = Queues(order="fifo")
    for k in range(900):
        queues.push(str(k), work=100)
    served_every(queues, 20, 400)
    served_every(queues, 100, 300)
    _, ms, _ = queues.expect("899")
    assert ms == pytest.approx(200 * 100, rel=0.2)


def test_a_rate_of_a_moment_ago_holds_when_waiting_begins_again() -> None:
    queues = measured()
    queues.push("again", work=100)
    assert queues.expect("again")[1] == pytest.approx(50, rel=0.1)


@pytest.mark.parametrize("rate", [20, 0.2])
def test_by_a_rate_that_the_fleet_s_figures_do_not_bear_out_nobody_is_refused(rate: float) -> None:
    """Ten times as many tokens are predicted of such requests as when it was measured, and the like."""
    queues = measured()
    queues.push("again", work=1000, rate=rate)
    assert queues.at_least("again", 1000) is None
    assert queues.expect("again")[1] == pytest.approx(500, rel=0.2), "it is still told"


def test_one_that_the_fleet_s_figures_bear_out_counts_more_than_these() -> None:
    queues = measured()
    queues.push("again", work=100, rate=3)
    assert queues.expect("again")[1] == pytest.approx(50, rel=0.1)
    assert queues.at_least("again", 1000) == 1000


def test_a_pause_of_slow_backends_tells_nothing_that_they_are_slower() -> None:
    queues = Queues(order="fifo")
    for k in range(12):
        queues.push(str(k), work=100)
    served_every(queues, 20_000, 10)
    queues.now += 15_000
    assert queues.expect("11")[1] == pytest.approx(USUAL * 2 * 20_000, rel=0.3)


def test_nothing_counts_as_measured_before_some_were_served() -> None:
    queues = Queues(order="fifo")
    for k in range(12):
        queues.push(str(k), work=100)
    shared = queues.shared
    for _ in range(600):
        queues.now += 100
        queues.expect("11")
    assert not WAIT.is_measured(shared)
    served_every(queues, 100, 6)
    assert WAIT.is_measured(shared)


def test_where_nothing_was_measured_the_guess_holds() -> None:
    shared = MEMORY.queue()
    WAIT.begin(shared, 0, 1000, lambda: 2.0)
    assert WAIT.raw(shared, 3000) == 1500


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(1, 500), st.integers(0, 2)),
        min_size=1,
        max_size=60,
    )
)
def test_the_position_over_several_workers_is_near_the_true_one(arrivals: list[tuple[str, int, int]]) -> None:
    exact, spread = Queues(), Queues(workers=3)
    for k, (flow, work, worker) in enumerate(arrivals):
        exact.push(str(k), flow=flow, work=work + k / 1024)
        spread.push(str(k), flow=flow, work=work + k / 1024, worker=worker)
    for name in exact.waiters:
        assert abs(exact.expect(name)[0] - spread.expect(name)[0]) <= 2 + len(arrivals) / 7


def test_the_middle_of_the_waits_and_what_nearly_all_do_not_exceed_are_learned() -> None:
    shared = MEMORY.queue()
    assert WAIT.factor(shared, 1000) == pytest.approx(USUAL)
    source = random.Random(1)
    for _ in range(600):
        WAIT.learn(shared, 1000, 1000 * source.uniform(1, 2))
    assert WAIT.factor(shared, 1000) == pytest.approx(1.5, abs=0.15)
    assert WAIT.most(shared, 1000) == pytest.approx(1.93, abs=0.15)


def test_the_middle_of_the_waits_is_told_where_twice_that_is_enough_for_nearly_all() -> None:
    shared = MEMORY.queue()
    for k in range(600):
        WAIT.learn(shared, 8000, 8000 * (1 + k % 10 / 20))
    assert WAIT.told(shared, 8000) == pytest.approx(8000 * WAIT.factor(shared, 8000))


def test_where_waits_are_spread_widely_so_much_is_told_that_twice_that_is_enough_for_nearly_all() -> None:
    shared = MEMORY.queue()
    source = random.Random(2)
    for _ in range(600):
        WAIT.learn(shared, 1000, 1000 * source.choice([1, 1, 1, 1, 6]))
    told = WAIT.told(shared, 1000)
    assert told == pytest.approx(1000 * WAIT.most(shared, 1000) / 2)
    assert told > 2000


def test_nobody_is_told_more_for_the_sake_of_waits_that_are_brief_all_the_same() -> None:
    shared = MEMORY.queue()
    source = random.Random(3)
    for _ in range(600):
        WAIT.learn(shared, 100, 100 * source.choice([1, 1, 1, 1, 6]))
    assert WAIT.told(shared, 100) == pytest.approx(100 * WAIT.factor(shared, 100))


def test_waits_that_are_shorter_than_their_work_says_are_taken_for_luck() -> None:
    shared = MEMORY.queue()
    for _ in range(100):
        WAIT.learn(shared, 1000, 300)
    assert WAIT.factor(shared, 1000) == 1


def test_one_that_gave_up_after_more_than_it_was_told_teaches_that() -> None:
    shared = MEMORY.queue()
    for _ in range(50):
        WAIT.outlast(shared, 1000, 900)
    assert WAIT.factor(shared, 1000) == pytest.approx(USUAL), "it may have had to wait for longer, or not"
    for _ in range(50):
        WAIT.outlast(shared, 1000, 5000)
    assert WAIT.factor(shared, 1000) > 2


def test_a_single_odd_wait_teaches_little() -> None:
    shared = MEMORY.queue()
    for _ in range(50):
        WAIT.learn(shared, 1000, 1000)
    before = WAIT.factor(shared, 1000)
    WAIT.learn(shared, 1000, 1_000_000)
    assert WAIT.factor(shared, 1000) == pytest.approx(before, rel=0.05)
    WAIT.learn(shared, 1, 40)
    assert WAIT.factor(shared, 1) == pytest.approx(USUAL), "waits of a moment tell nothing"


def test_short_waits_teach_nothing_of_long_ones() -> None:
    shared = MEMORY.queue()
    for _ in range(50):
        WAIT.learn(shared, 200, 600)
    assert WAIT.factor(shared, 200) == pytest.approx(3, rel=0.1)
    assert WAIT.factor(shared, 9000) == pytest.approx(USUAL)


def test_the_rate_of_short_times_of_waiting_adds_up() -> None:
    queues = Queues(order="fifo")
    for _ in range(60):
        # Somebody waits for 100 ms, then nobody does for a while.
        queues.push("a", work=100)
        queues.push("b", work=100)
        queues.serve(passed=50)
        queues.serve(passed=50)
        queues.now += 400
    for k in range(20):
        queues.push(str(k), work=100)
    assert queues.expect("19")[1] == pytest.approx(USUAL * 20 * 50, rel=0.25)


def test_who_is_overtaken_is_told_by_how_fast_its_turn_comes_near() -> None:
    queues = Queues()
    for k in range(300):
        queues.push(f"flood-{k}", flow="flood", work=100)
    for k in range(300):
        # Every second place goes to somebody else, who comes just before.
        if k % 2:
            queues.push(f"other-{k}", work=50)
        queues.serve(passed=50)
        queues.expect("flood-299")
    waiting = sum(name.startswith("flood") for name in queues.waiters)
    _, ms, _ = queues.expect("flood-299")
    assert ms == pytest.approx(waiting * 100, rel=0.4)


def test_before_the_rates_are_settled_a_wait_is_reckoned_as_a_few_times_its_work_at_most() -> None:
    shared = MEMORY.queue()
    fill(shared, work=1000, passed=1000, rise=1, rise_passed=1000)
    assert WAIT.raw(shared, 500, 2) == 1500, "V has hardly moved yet: that tells nothing"
    fill(shared, measured=6000, gone=10)
    assert WAIT.raw(shared, 500, 2) == 2000


def test_what_was_learned_of_one_order_is_forgotten_with_it() -> None:
    queues = Queues(order="fifo")
    for _ in range(50):
        WAIT.learn(queues.shared, 1000, 3000)
    assert WAIT.factor(queues.shared, 1000) > 2
    QUEUE.configure(queues.queues[0], settings(order="fair"))
    assert WAIT.factor(queues.shared, 1000) == pytest.approx(USUAL)


@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=30),
    st.lists(st.floats(0, 1e6), min_size=1, max_size=30),
)
def test_estimates_are_finite_whatever_happens(steps: list[float], served: list[float]) -> None:
    shared = MEMORY.queue()
    now = total = 0.0
    WAIT.begin(shared, 0, now, lambda: 0.0)
    for passed, work in zip(steps, served, strict=False):
        now, total = now + passed, total + work
        WAIT.sample(shared, total, now)
        raw = WAIT.raw(shared, 1e6)
        assert raw is None or (math.isfinite(raw) and raw >= 0)
