"""`lua/tokenweir/core/queue`: in which order those who wait are served."""

from __future__ import annotations

import itertools
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.queue.queues import QUEUE, Queues, settings


def test_one_flow_s_flood_does_not_delay_another_s_single_request() -> None:
    queues = Queues()
    for k in range(50):
        queues.push(f"flood-{k}", flow="flood", work=500)
    queues.push("single", flow="other", work=500)
    assert queues.drain().index("single") <= 1


def test_of_requests_that_come_alone_the_smaller_goes_first() -> None:
    queues = Queues()
    for name, work in (("large", 4000), ("small", 50), ("middle", 700)):
        queues.push(name, work=work)
    assert queues.drain() == ["small", "middle", "large"]


def test_flows_share_by_their_weights() -> None:
    queues = Queues()
    for k in range(60):
        queues.push(f"a-{k}", flow="a", weight=2)
        queues.push(f"b-{k}", flow="b", weight=1)
    first = Counter(name[0] for name in queues.drain()[:60])
    assert first["a"] == pytest.approx(40, abs=2)


def test_classes_share_by_their_weights() -> None:
    queues = Queues()
    for k in range(60):
        queues.push(f"high-{k}", flow="a", priority="high")
        queues.push(f"low-{k}", flow="b", priority="low")
    first = Counter(name.split("-")[0] for name in queues.drain()[:50])
    assert first["high"] == pytest.approx(40, abs=2)


def test_many_keys_of_high_priority_leave_low_priority_its_floor() -> None:
    queues = Queues(low=(1, 0.1))
    for k in range(300):
        queues.push(f"high-{k}", flow=f"key-{k % 60}", priority="high")
    for k in range(100):
        queues.push(f"low-{k}", flow="low", priority="low", work=100)
    served = [queues.serve(passed=10) or "" for _ in range(200)]
    low = [k for k, name in enumerate(served) if name.startswith("low")]
    assert len(low) == pytest.approx(20, abs=2)
    assert max(after - before for before, after in itertools.pairwise(low)) <= 11


def test_a_class_that_was_served_well_is_not_made_to_pay_for_it_later() -> None:
    queues = Queues(low=(1, 0.1))
    for k in range(100):
        queues.push(f"early-{k}", flow="low", priority="low")
        queues.serve()
    for k in range(100):
        queues.push(f"high-{k}", flow=f"key-{k % 30}", priority="high")
        queues.push(f"low-{k}", flow="low", priority="low")
    served = [queues.serve(passed=10) or "" for _ in range(60)]
    assert sum(name.startswith("low") for name in served) >= 5


def test_without_a_floor_a_class_has_only_its_weight() -> None:
    queues = Queues(low=(1, 0))
    for k in range(100):
        queues.push(f"high-{k}", flow=f"key-{k}", priority="high")
    queues.push("low", priority="low", work=1000)
    assert queues.drain()[-1] == "low"


def test_when_nobody_waits_all_flows_begin_anew() -> None:
    queues = Queues()
    for k in range(30):
        queues.push(f"flood-{k}", flow="flood")
    queues.drain()
    queues.push("again", flow="flood", work=99)
    queues.push("other", flow="other", work=100)
    assert queues.drain() == ["again", "other"]


def test_one_that_leaves_unserved_is_not_charged() -> None:
    queues = Queues()
    queues.push("gone", flow="a", work=5000)
    queues.push("b", flow="b", work=110)
    queues.leave("gone")
    queues.push("a", flow="a", work=100)
    assert queues.drain() == ["a", "b"]


def test_first_come_first_served_can_be_chosen() -> None:
    queues = Queues(order="fifo")
    names = ["large", "small", "high", "low"]
    queues.push("large", work=4000)
    queues.push("small", work=10)
    queues.push("high", priority="high", work=10)
    queues.push("low", priority="low", work=10)
    assert queues.drain() == names


def test_by_score_short_outputs_go_first_each_as_they_came() -> None:
    queues = Queues(order="score", normal=(1, 0))
    for name, output in (("a", "high"), ("b", "low"), ("c", "high"), ("d", "low")):
        queues.push(name, output=output)
    assert queues.drain() == ["b", "d", "a", "c"]


def test_by_score_long_outputs_have_the_floor_of_their_class() -> None:
    queues = Queues(order="score", normal=(1, 0.1))
    queues.push("long", output="high")
    for k in range(40):
        queues.push(f"short-{k}", output="low")
    assert queues.drain().index("long") <= 11


def test_another_order_holds_for_those_who_wait_already() -> None:
    queues = Queues()
    for name, work in (("large", 4000), ("small", 50)):
        queues.push(name, work=work)
    QUEUE.configure(queues.queues[0], settings(order="fifo"))
    assert queues.drain() == ["large", "small"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abcde"),
            st.sampled_from(["high", "normal", "low"]),
            st.integers(1, 5000),
            st.integers(0, 2),
        ),
        max_size=40,
    ),
    st.sampled_from(["fair", "fifo", "score"]),
    st.integers(1, 3),
)
def test_everybody_is_served_once_whatever_the_order(
    arrivals: list[tuple[str, str, int, int]], order: str, workers: int
) -> None:
    queues = Queues(workers=workers, order=order)
    for k, (flow, priority, work, worker) in enumerate(arrivals):
        queues.push(str(k), flow=flow, priority=priority, work=work, worker=worker % workers)
        if work % 3 == 0:
            queues.serve()
    waiting = set(queues.waiters)
    served = queues.drain()
    assert len(served) == len(set(served))
    assert set(served) == waiting
    for queue in queues.queues:
        assert queue[b"size"] == 0
        assert queue[b"own"].shown == 0


@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 1000), st.integers(0, 2)), max_size=36),
    st.sampled_from(["fair", "fifo", "score"]),
)
def test_the_order_is_the_same_however_many_workers_there_are(
    arrivals: list[tuple[str, int, int]], order: str
) -> None:
    one, three = Queues(order=order), Queues(workers=3, order=order)
    for k, (flow, work, worker) in enumerate(arrivals):
        # Equal tags in two workers are in no order. Tags are sums of works: sums of powers are never equal.
        own = work + 2.0 ** -(k + 1)
        one.push(str(k), flow=flow, work=own)
        three.push(str(k), flow=flow, work=own, worker=worker)
    assert one.drain() == three.drain()
