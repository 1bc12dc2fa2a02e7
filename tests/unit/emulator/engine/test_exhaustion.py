"""What happens when KV memory is full."""

from collections.abc import Callable
from math import inf

import pytest

from emulator.engine import Engine, EventKind, Exhaustion, Request, State
from tests.unit.emulator.engine.engines import held_blocks, requests

Make = Callable[..., Engine]
Run = Callable[[Engine], float]


def kinds(engine: Engine) -> list[EventKind]:
    return [event.kind for event in engine.events()]


def test_preempt_takes_the_newest_and_computes_it_again(make_engine: Make, run: Run) -> None:
    engine = make_engine(capacity=320)
    old, new = requests((144, 100), (144, 100))
    engine.submit(old, 0)
    engine.submit(new, 0)
    run(engine)
    assert (old.preemptions, new.preemptions) == (0, 1)
    assert old.finished == 1000, "the oldest never notices"
    assert new.finished > old.finished
    assert engine.generated(new) == 100
    assert engine.counters.generation_tokens == 200
    assert engine.counters.prompt_tokens == 288, "recomputed tokens are not counted again"
    assert kinds(engine).count(EventKind.PREEMPTED) == 1
    assert held_blocks(engine) == 0


def test_a_preempted_request_keeps_the_tokens_that_it_has_streamed(make_engine: Make) -> None:
    engine = make_engine(capacity=320)
    _, new = pair = requests((144, 100), (144, 100))
    for request in pair:
        engine.submit(request, 0)
    seen = 0
    while not engine.idle:
        engine.advance(engine.next_step())
        assert engine.generated(new) >= seen
        seen = engine.generated(new)
    assert seen == 100


def test_a_step_that_preempted_admits_nobody(make_engine: Make) -> None:
    engine = make_engine(capacity=320, watermark=0.0)
    first, second, small = requests((144, 100), (144, 100), (16, 1))
    engine.submit(first, 0)
    engine.submit(second, 0)
    while not second.preemptions:
        engine.advance(engine.next_step())
    engine.submit(small, engine.now)
    engine.advance(engine.next_step())
    assert small.state is State.WAITING


def test_a_waiting_request_is_admitted_only_above_the_watermark(make_engine: Make) -> None:
    def waits(watermark: float) -> bool:
        engine = make_engine(capacity=1600, watermark=watermark)
        for request in requests((800, 50), (752, 5)):
            engine.submit(request, 0)
        engine.advance(5)
        return len(engine.waiting) == 1

    assert not waits(0.02)
    assert waits(0.04)


def test_an_empty_engine_admits_a_request_that_needs_even_the_watermark(make_engine: Make, run: Run) -> None:
    engine, request = make_engine(capacity=1600, watermark=0.1), Request(1590, 10)
    engine.submit(request, 0)
    run(engine)
    assert request.state is State.DONE


def test_a_prompt_is_not_started_before_all_of_it_fits(make_engine: Make) -> None:
    engine = make_engine(capacity=1600, max_num_batched_tokens=256)
    first, second = requests((1200, 100), (500, 5))
    engine.submit(first, 0)
    engine.submit(second, 0)
    engine.advance(200)
    assert second.state is State.WAITING


def test_abort_fails_all_in_flight_and_serves_the_waiting(make_engine: Make, run: Run) -> None:
    engine = make_engine(capacity=320, exhaustion=Exhaustion.ABORT, max_num_seqs=2)
    first, second, third = requests((144, 100), (144, 100), (144, 100))
    for request in (first, second, third):
        engine.submit(request, 0)
    run(engine)
    assert first.failure and second.failure
    assert first.failure == "KV memory is full: every request in flight was aborted"
    assert (third.failure, engine.generated(third)) == ("", 100)
    assert (engine.counters.failed, engine.counters.finished) == (2, 1)
    assert held_blocks(engine) == 0


def test_abort_admits_without_looking_so_a_prompt_can_fail_the_others(make_engine: Make, run: Run) -> None:
    engine = make_engine(capacity=320, exhaustion=Exhaustion.ABORT)
    first, second = requests((200, 10), (200, 10))
    engine.submit(first, 0)
    engine.submit(second, 0)
    run(engine)
    assert first.failure and second.failure


def test_crash_kills_the_engine_until_it_is_restarted(make_engine: Make, run: Run) -> None:
    engine = make_engine(capacity=320, exhaustion=Exhaustion.CRASH, max_num_seqs=2)
    everyone = requests((144, 100), (144, 100), (16, 5))
    for request in everyone:
        engine.submit(request, 0)
    engine.advance(5000)
    assert not engine.alive
    assert all(request.failure for request in everyone)
    assert engine.next_change() == inf
    with pytest.raises(RuntimeError, match="down"):
        engine.submit(Request(16, 2), 5000)
    engine.restart(6000)
    again = Request(16, 2)
    engine.submit(again, 6000)
    run(engine)
    assert again.finished == 6020
    assert held_blocks(engine) == 0


def test_crash_waits_with_a_prompt_that_does_not_fit(make_engine: Make, run: Run) -> None:
    engine = make_engine(capacity=320, exhaustion=Exhaustion.CRASH)
    first, second = requests((200, 10), (200, 10))
    engine.submit(first, 0)
    engine.submit(second, 0)
    run(engine)
    assert not first.failure and not second.failure
    assert second.first_token > first.finished
