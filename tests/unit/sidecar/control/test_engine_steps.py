"""The mean step between two looks."""

from __future__ import annotations

import pytest

from sidecar.control.engine_steps import EXACT, ROUGH, mean_step, restarted
from sidecar.telemetry.readings import EngineReading, Total


def look(at, **members):
    return EngineReading(at=at, source="vllm", **members)


def test_the_time_between_tokens_is_what_a_step_takes():
    before = look(0, running=4, kv_use=0.1, inter_token=Total(1000, 100), steps=Total(150, 30))
    after = look(500, running=4, kv_use=0.3, inter_token=Total(1500, 140), steps=Total(230, 40))
    step = mean_step(before, after, 10_000)
    assert (step.ms, step.sequences, step.kv_tokens) == (12.5, 4.0, 2000)
    assert step.prompt_tokens == 4
    assert step.noise == EXACT


def test_without_a_count_of_steps_the_batch_says_how_many_there_were():
    before = look(0, running=3, inter_token=Total(0, 0))
    after = look(500, running=5, inter_token=Total(480, 48))
    step = mean_step(before, after, None)
    assert (step.ms, step.sequences, step.kv_tokens) == (10, 4, 0)


def test_an_engine_that_times_its_own_steps_is_believed():
    before = look(0, running=2, step_time=Total(0, 0))
    after = look(500, running=2, step_time=Total(400, 20))
    assert mean_step(before, after, None).ms == 20


def test_one_that_only_counts_its_output_is_timed_by_the_clock():
    before = look(0, running=2, output_tokens=100.0, prompt_tokens=50.0)
    after = look(500, running=2, output_tokens=150.0, prompt_tokens=100.0)
    step = mean_step(before, after, None)
    assert (step.ms, step.prompt_tokens, step.noise) == (20, 2, ROUGH)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (look(0, inter_token=Total(0, 0)), look(50, inter_token=Total(400, 40))),
        (look(0, inter_token=Total(0, 0)), look(60_000, inter_token=Total(400, 40))),
        (look(0, inter_token=Total(0, 0)), look(500, inter_token=Total(40, 4))),
        (look(0, inter_token=Total(900, 90)), look(500, inter_token=Total(400, 40))),
        (look(0, output_tokens=900.0), look(500, output_tokens=20.0)),
        (look(0, running=0, output_tokens=0.0), look(500, running=2, output_tokens=20.0)),
        (look(0), look(500)),
    ],
    ids=["too close", "too far", "too few", "fell", "restarted", "idle before", "nothing told"],
)
def test_looks_that_tell_nothing(before, after):
    assert mean_step(before, after, None) is None


def test_a_counter_that_falls_is_another_process():
    assert restarted(look(0, output_tokens=10.0), look(1, output_tokens=9.0))
    assert not restarted(look(0, output_tokens=10.0), look(1, output_tokens=10.0))
    assert not restarted(look(0), look(1, output_tokens=10.0))
