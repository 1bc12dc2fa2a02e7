"""Prefixes in KV memory."""

from collections.abc import Callable, Hashable

from emulator.engine import Engine, Request
from emulator.engine.kv_memory import KvMemory
from tests.unit.emulator.engine.engines import held_blocks

Make = Callable[..., Engine]
Run = Callable[[Engine], float]

PREFIX = ("a", "b", "c", "d")


class Watch:
    """Keeps what it hears."""

    def __init__(self) -> None:
        self.there: list[Hashable] = []

    def filled(self, key: Hashable) -> None:
        self.there.append(key)

    def lost(self, key: Hashable) -> None:
        self.there.remove(key)


def test_a_second_request_finds_the_prefix_of_the_first(make_engine: Make, run: Run) -> None:
    engine = make_engine()
    first, second = Request(80, 5, PREFIX), Request(80, 5, PREFIX)
    engine.submit(first, 0)
    run(engine)
    engine.submit(second, 1000)
    run(engine)
    assert (first.cached, second.cached) == (0, 64)
    assert engine.counters.prefix_queries == 160
    assert engine.counters.prefix_hits == 64


def test_requests_share_the_memory_of_a_common_prefix(make_engine: Make) -> None:
    engine = make_engine()
    engine.submit(Request(70, 50, PREFIX), 0)
    engine.advance(15)
    alone = held_blocks(engine)
    engine.submit(Request(70, 50, PREFIX), 15)
    engine.advance(35)
    assert held_blocks(engine) == alone + 1


def test_two_requests_of_one_step_share_too(make_engine: Make, run: Run) -> None:
    engine = make_engine()
    for _ in range(2):
        engine.submit(Request(70, 50, PREFIX), 0)
    engine.advance(5)
    assert held_blocks(engine) == 6
    run(engine)
    assert held_blocks(engine) == 0


def test_a_hit_ends_at_the_first_block_that_differs(make_engine: Make, run: Run) -> None:
    engine = make_engine()
    engine.submit(Request(80, 5, PREFIX), 0)
    run(engine)
    other = Request(80, 5, ("a", "b", "x", "d"))
    engine.submit(other, 1000)
    run(engine)
    assert other.cached == 32


def test_the_last_token_is_always_computed(make_engine: Make, run: Run) -> None:
    engine = make_engine()
    for at in (0, 1000):
        request = Request(64, 2, PREFIX)
        engine.submit(request, at)
        run(engine)
    assert request.cached == 48


def test_a_next_turn_finds_what_the_last_one_produced(make_engine: Make, run: Run) -> None:
    engine = make_engine()
    engine.submit(Request(32, 40, PREFIX), 0)
    run(engine)
    turn = Request(100, 5, (*PREFIX, "e"))
    engine.submit(turn, 1000)
    run(engine)
    assert turn.cached == 64


def test_a_cached_prefix_counts_as_free_and_gives_way(make_engine: Make, run: Run) -> None:
    engine = make_engine(capacity=160, watermark=0.0)
    engine.submit(Request(64, 2, PREFIX), 0)
    run(engine)
    assert held_blocks(engine) == 0
    engine.submit(Request(150, 5), 1000)
    run(engine)
    again = Request(64, 2, PREFIX)
    engine.submit(again, 2000)
    run(engine)
    assert again.cached == 0


def test_the_end_of_a_prefix_gives_way_before_its_beginning(make_engine: Make, run: Run) -> None:
    engine = make_engine(capacity=160, watermark=0.0)
    engine.submit(Request(64, 2, PREFIX), 0)
    run(engine)
    engine.submit(Request(120, 2), 1000)
    run(engine)
    again = Request(64, 2, PREFIX)
    engine.submit(again, 2000)
    run(engine)
    assert again.cached == 32


def test_a_preempted_request_may_find_its_own_blocks_again(make_engine: Make, run: Run) -> None:
    def recomputed(prefix_caching: bool) -> int:
        engine = make_engine(capacity=320, prefix_caching=prefix_caching, max_num_batched_tokens=256)
        engine.submit(Request(144, 30), 0)
        engine.submit(Request(144, 60), 0)
        run(engine)
        assert engine.counters.preemptions == 1
        return engine.counters.steps

    assert recomputed(True) <= recomputed(False)


def test_without_prefix_caching_nothing_is_found(make_engine: Make, run: Run) -> None:
    engine = make_engine(prefix_caching=False)
    for at in (0, 1000):
        request = Request(80, 5, PREFIX)
        engine.submit(request, at)
        run(engine)
    assert request.cached == 0
    assert engine.counters.prefix_queries == 0


def test_hash_blocks_may_be_larger_than_memory_blocks(make_engine: Make, run: Run) -> None:
    engine = make_engine(hash_tokens=512)
    for at in (0, 1000):
        request = Request(1100, 5, ("a", "b"))
        engine.submit(request, at)
        run(engine)
    assert request.cached == 1024
    assert held_blocks(engine) == 0


def test_blocks_that_come_from_elsewhere_are_found_and_held_by_nobody(make_engine: Make, run: Run) -> None:
    engine = make_engine()
    assert engine.memory.adopt(PREFIX[:3]) == 3
    assert held_blocks(engine) == 0
    request = Request(80, 5, PREFIX)
    engine.submit(request, 0)
    run(engine)
    assert request.cached == 48


def test_no_more_of_them_are_taken_than_there_is_room_for() -> None:
    memory = KvMemory(4)
    memory.take(2)
    assert memory.adopt(("a", "b", "c")) == 2
    assert (memory.free, memory.cache.match(("a", "b", "c"), 3)) == (2, 2)


def test_those_that_are_there_already_stay(make_engine: Make, run: Run) -> None:
    engine = make_engine()
    engine.submit(Request(40, 1, PREFIX[:2]), 0)
    run(engine)
    free = engine.memory.free
    assert engine.memory.adopt(PREFIX) == 4
    assert engine.memory.free == free
    assert engine.memory.adopt(PREFIX) == 4


def test_who_watches_hears_of_blocks_that_are_filled_and_lost(make_engine: Make, run: Run) -> None:
    engine, watch = make_engine(), Watch()
    engine.memory.watch = watch
    engine.submit(Request(80, 5, PREFIX), 0)
    run(engine)
    assert watch.there == list(PREFIX)
    engine.memory.take(engine.memory.free)
    assert watch.there == []
    engine.memory.give(engine.memory.blocks, ())
    engine.memory.adopt(PREFIX[:2])
    assert watch.there == list(PREFIX[:2])
    engine.restart(1e6)
    assert watch.there == []
    assert engine.memory.watch is watch
