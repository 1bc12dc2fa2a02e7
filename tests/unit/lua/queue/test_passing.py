"""`lua/tokenweir/core/queue/turn.lua`: who may pass the first one where no backend has room for it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.lua.queue.queues import Queues

HELD = 7


def only_small(name: str, apart: int | None) -> bool:
    """No backend has room for those whose names begin with "large"."""
    return not name.startswith("large")


def test_one_that_fits_passes_the_first_one_where_that_does_not() -> None:
    queues = Queues(order="fifo")
    queues.push("large")
    queues.push("small")
    assert queues.serve(fits=only_small) == "small"
    assert queues.serve() == "large"


def test_the_first_one_is_tried_first_and_the_others_in_order() -> None:
    queues = Queues(order="fifo")
    for name in ("large-1", "large-2", "a", "b"):
        queues.push(name)
    tried: list[str] = []

    def fits(name: str, apart: int | None) -> bool:
        tried.append(name)
        return name == "a"

    assert queues.serve(fits=fits) == "a"
    assert tried == ["large-1", "large-2", "a"]


def test_what_is_given_back_while_one_behind_is_tried_is_the_first_ones() -> None:
    queues = Queues(order="fifo", workers=2)
    queues.push("first", worker=0)
    queues.push("second", worker=1)
    for worker in (0, 1):
        assert queues.look(worker, fits=lambda name, apart: False) is None
    queues.now += 10

    def just_released(name: str, apart: int | None) -> bool:
        queues.release()
        return True

    assert queues.look(1, fits=just_released) is None
    assert queues.look(1) is None
    assert queues.look(0) == "first"


def test_no_more_than_eight_behind_the_first_one_are_looked_at() -> None:
    queues = Queues(order="fifo")
    for k in range(9):
        queues.push(f"large-{k}")
    queues.push("small")
    assert queues.serve(fits=only_small) is None
    queues.leave("large-3")
    assert queues.serve(fits=only_small) == "small"


def test_after_two_seconds_the_backend_that_it_can_use_soonest_is_held_for_the_first_one() -> None:
    queues = Queues(order="fifo")
    queues.push("large")
    for name in "abc":
        queues.push(name)
    apart_for: dict[str, int | None] = {}

    def fits(name: str, apart: int | None) -> bool:
        apart_for[name] = apart
        return not name.startswith("large") and apart != HELD

    def hold(name: str) -> int:
        assert name == "large"
        return HELD

    assert queues.serve(fits=fits, hold=hold) == "a"
    assert apart_for["a"] is None
    assert queues.serve(passed=1900, fits=fits, hold=hold) == "b"
    assert queues.serve(passed=200, fits=fits, hold=hold) is None
    assert apart_for == {"large": None, "a": None, "b": None, "c": HELD}


def test_engines_on_which_nothing_is_held_are_kept_fed() -> None:
    queues = Queues(order="fifo")
    queues.push("large")
    queues.serve(fits=only_small)
    queues.push("small")
    assert queues.serve(passed=5000, fits=only_small, hold=lambda name: HELD) == "small"


def test_where_no_backend_can_be_held_for_it_others_pass_as_before() -> None:
    queues = Queues(order="fifo")
    queues.push("large")
    queues.push("small")
    assert queues.serve(fits=lambda name, apart: False) is None
    assert queues.serve(passed=5000, fits=only_small) == "small"


def test_one_in_another_worker_waits_until_the_first_one_was_tried() -> None:
    queues = Queues(workers=2, order="fifo")
    queues.push("large", worker=0)
    queues.push("small", worker=1)
    queues.release()
    assert queues.look(1) is None, "the place may be one for `large`"
    assert queues.look(0, fits=only_small) is None
    assert queues.look(1) == "small"


def test_after_a_release_the_first_one_is_tried_again_before_others_are() -> None:
    queues = Queues(workers=2, order="fifo")
    queues.push("large", worker=0)
    queues.push("small", worker=1)
    queues.look(0, fits=only_small)
    queues.release()
    assert queues.look(1) is None
    assert queues.look(0) == "large"


def test_while_a_place_is_being_given_back_nobody_passes_the_first_one() -> None:
    queues = Queues(workers=2, order="fifo")
    queues.push("large", worker=0)
    queues.push("small", worker=1)
    queues.tide = float("nan")
    assert queues.look(0, fits=only_small) is None
    assert queues.look(1) is None
    assert queues.look(0) == "large"
    assert queues.look(1) == "small"


def test_one_that_has_become_the_first_is_tried_as_the_first_before_others_pass_it() -> None:
    queues = Queues(workers=2, order="fifo")
    queues.push("large-1", worker=0)
    queues.push("large-2", worker=1)
    queues.push("small", worker=0)
    queues.look(0, fits=only_small)
    queues.look(1, fits=only_small)
    queues.leave("large-1")
    assert queues.look(0) is None
    assert queues.look(1) == "large-2"


def test_a_worker_that_has_not_looked_for_long_is_told_of() -> None:
    queues = Queues(workers=2, order="fifo")
    queues.push("first", worker=0)
    queues.push("second", worker=1)
    queues.look(0, fits=lambda name, apart: False)
    queues.release()
    assert queues.look(1) is None
    assert queues.queues[1][b"stuck"] is False
    queues.now += 150
    assert queues.look(1) is None
    assert queues.queues[1][b"stuck"] is True


def test_a_worker_that_is_stopped_keeps_nobody_waiting_and_has_its_turn_when_it_goes_on() -> None:
    queues = Queues(workers=2, order="fifo")
    queues.push("first", worker=0)
    queues.push("second", worker=1)
    queues.push("third", worker=1)
    queues.now += 1100
    assert queues.look(1) == "second"
    assert queues.queues[1][b"stuck"] is True, "it may be dead"
    queues.look(0, fits=lambda name, apart: False)
    assert queues.look(1, fits=lambda name, apart: False) is None
    queues.release()
    assert queues.look(1) is None, "the first one's worker looks again"
    assert queues.look(0) == "first"
    assert queues.look(1) == "third"


def test_with_nothing_released_the_first_one_is_tried_again_after_a_moment() -> None:
    queues = Queues()
    queues.push("only")
    assert queues.look(fits=lambda name, apart: False) is None
    assert queues.look() is None, "nothing has changed"
    queues.now += 10
    assert queues.look() == "only"


@given(
    sizes=st.lists(st.integers(1, 10), min_size=1, max_size=30),
    rooms=st.lists(st.integers(1, 10), max_size=60),
    workers=st.integers(1, 3),
    data=st.data(),
)
def test_whoever_is_served_stood_at_most_eight_behind_the_first_and_none_before_it_had_fitted(
    sizes: list[int], rooms: list[int], workers: int, data: st.DataObject
) -> None:
    queues = Queues(workers=workers, order="fifo")
    order = []
    for k, size in enumerate(sizes):
        queues.push(f"{k}:{size}", worker=data.draw(st.integers(0, workers - 1)))
        order.append(f"{k}:{size}")
    for room in rooms:
        name = queues.serve(passed=1, fits=lambda name, apart, room=room: int(name.split(":")[1]) <= room)
        if name is None:
            assert all(int(waiter.split(":")[1]) > room for waiter in order[:9])
            continue
        place = order.index(name)
        assert place <= 8
        assert all(int(waiter.split(":")[1]) > room for waiter in order[:place])
        order.remove(name)


def test_a_narrower_window_can_be_set() -> None:
    queues = Queues(order="fifo", window=0)
    queues.push("large")
    queues.push("small")
    assert queues.serve(fits=only_small) is None


@pytest.mark.parametrize("workers", [1, 3])
def test_who_is_owed_a_turn_by_its_class_stands_first(workers: int) -> None:
    queues = Queues(workers=workers, low=(1, 0.5))
    queues.push("low", priority="low", work=100, worker=workers - 1)
    for k in range(3):
        queues.push(f"high-{k}", priority="high", work=100 + k)
    queues.serve()
    queues.serve()
    for worker in range(workers):
        queues.look(worker, fits=lambda name, apart: False)
    assert queues.serve() == "low"


def test_of_a_class_that_is_owed_a_turn_only_the_first_over_all_workers_has_it() -> None:
    queues = Queues(workers=2, low=(1, 0.5))
    queues.push("low-0", flow="low", priority="low", work=50, worker=0)
    queues.push("low-1", flow="low", priority="low", work=50, worker=1)
    queues.push("high", priority="high", work=150)
    assert queues.serve() in {"high", "low-0"}
    # Worker 1 sees that the class is owed a turn before worker 0 has looked again.
    queues.release()
    assert queues.look(1) is None
