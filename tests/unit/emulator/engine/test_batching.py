"""Continuous batching: who runs in which step, and what the caller hears of it."""

from collections.abc import Callable
from math import inf, isnan

import pytest

from emulator.engine import Engine, EventKind, Request, State
from tests.unit.emulator.engine.engines import held_blocks, requests

Make = Callable[..., Engine]
Run = Callable[[Engine], float]


def test_one_request_takes_a_prefill_step_and_one_step_for_each_further_token(make_engine: Make) -> None:
    engine, request = make_engine(), Request(100, 5)
    engine.submit(request, 0)
    engine.advance(49.9)
    assert request.first_token == 10
    assert engine.generated(request) == 4
    engine.advance(50)
    assert (request.finished, request.state, engine.generated(request)) == (50, State.DONE, 5)
    assert [event.kind for event in engine.events()] == [EventKind.FIRST_TOKEN, EventKind.FINISHED]
    assert engine.idle


def test_a_request_of_one_token_finishes_with_its_prefill(make_engine: Make, run: Run) -> None:
    engine, request = make_engine(), Request(100, 1)
    engine.submit(request, 0)
    assert run(engine) == 10
    assert request.first_token == request.finished == 10


def test_an_embedding_finishes_without_a_token(make_engine: Make, run: Run) -> None:
    engine, request = make_engine(), Request(100, 0)
    engine.submit(request, 0)
    run(engine)
    assert isnan(request.first_token)
    assert request.finished == 10
    assert engine.counters.generation_tokens == 0
    assert engine.counters.prompt_tokens == 100


def test_a_long_prompt_is_computed_in_chunks_of_the_token_budget(make_engine: Make) -> None:
    engine, request = make_engine(max_num_batched_tokens=256), Request(1000, 2)
    engine.submit(request, 0)
    engine.advance(100)
    assert request.first_token == 40
    assert request.finished == 50


def test_decoding_sequences_come_before_prompts_in_the_budget(make_engine: Make) -> None:
    engine = make_engine(max_num_batched_tokens=256)
    first, second = requests((16, 50), (256, 2))
    engine.submit(first, 0)
    engine.advance(10)
    engine.submit(second, 10)
    engine.advance(inf)
    # One token of each step belongs to the first, so 256 need two steps.
    assert second.first_token == 30
    assert first.finished == 500


def test_a_request_that_comes_during_a_step_joins_the_next(make_engine: Make) -> None:
    engine = make_engine()
    first, second = requests((16, 50), (16, 2))
    engine.submit(first, 0)
    engine.submit(second, 33)
    engine.advance(inf)
    assert second.scheduled == 40
    assert second.first_token == 50


def test_with_asynchronous_scheduling_it_joins_the_step_after_the_next(make_engine: Make) -> None:
    engine = make_engine(async_scheduling=True)
    first, second, later = requests((16, 20), (16, 2), (16, 2))
    engine.submit(first, 0)
    engine.submit(second, 33)
    engine.advance(1000)
    assert first.first_token == 10, "an idle engine has nothing planned ahead"
    assert second.first_token == 60
    engine.submit(later, 1000)
    engine.advance(2000)
    assert later.first_token == 1010


def test_no_more_than_max_num_seqs_run_at_once(make_engine: Make, run: Run) -> None:
    engine = make_engine(max_num_seqs=2)
    all_requests = requests((16, 10), (16, 10), (16, 10))
    for request in all_requests:
        engine.submit(request, 0)
    engine.advance(50)
    assert (len(engine.running), len(engine.waiting)) == (2, 1)
    run(engine)
    assert [request.first_token for request in all_requests] == [10, 10, 110]


def test_a_request_that_can_never_fit_is_refused_at_once(make_engine: Make) -> None:
    engine = make_engine(capacity=160)
    with pytest.raises(ValueError, match="100 prompt and 61 output tokens exceed the KV memory of 160"):
        engine.submit(Request(100, 61), 0)
    assert engine.idle


def test_an_aborted_request_frees_its_memory_at_once(make_engine: Make) -> None:
    engine = make_engine()
    running, waiting = requests((160, 100), (160, 100))
    engine.submit(running, 0)
    engine.advance(95)
    engine.submit(waiting, 95)
    assert held_blocks(engine) > 0
    engine.abort(running, 96)
    engine.abort(waiting, 96)
    assert held_blocks(engine) == 0
    assert engine.idle
    assert engine.counters.aborted == 2
    engine.abort(running, 97)
    assert engine.counters.aborted == 2, "aborting twice is once"


def test_a_request_aborted_in_its_prefill_does_not_come_back(make_engine: Make) -> None:
    engine, request = make_engine(), Request(160, 10)
    engine.submit(request, 0)
    engine.advance(5)
    engine.abort(request, 5)
    engine.advance(100)
    assert engine.events() == []
    assert isnan(request.first_token)


def test_the_next_change_is_the_end_of_the_first_sequence_to_finish(make_engine: Make) -> None:
    engine = make_engine()
    for request in requests((16, 30), (16, 12)):
        engine.submit(request, 0)
    engine.advance(15)
    assert engine.next_step() == 20
    assert engine.next_change() == 120
    engine.advance(120)
    assert len(engine.running) == 1


def test_an_idle_engine_has_no_next_step(make_engine: Make) -> None:
    engine = make_engine()
    assert engine.next_step() == engine.next_change() == inf


def test_a_slowdown_stretches_every_step(make_engine: Make, run: Run) -> None:
    engine, request = make_engine(), Request(16, 10)
    engine.pace.slowdown = 3
    engine.submit(request, 0)
    assert run(engine) == pytest.approx(300)


def test_counters_add_up(make_engine: Make, run: Run) -> None:
    engine = make_engine(max_num_batched_tokens=300)
    shapes = [(700, 9), (31, 40), (16, 1), (250, 17)]
    for request in requests(*shapes):
        engine.submit(request, 0)
    run(engine)
    counters = engine.counters
    assert counters.prompt_tokens == sum(prompt for prompt, _ in shapes)
    assert counters.generation_tokens == sum(output for _, output in shapes)
    assert (counters.submitted, counters.finished) == (4, 4)
    assert counters.busy == pytest.approx(engine.now)
