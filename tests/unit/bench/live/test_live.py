"""`bench/live`: what is sent, and what is made of the answers."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from typing import Any

import pytest

import bench.live.__main__ as main
from bench.live import figures, fleet, loadgen, prompts, simulated
from bench.live.loadgen import Answer
from bench.policy.traces import Asked
from bench.servers.llama import LlamaEngine
from emulator.openai import prompt
from emulator.openai.answer import choices
from emulator.openai.parameters import Sampling
from emulator.settings import Settings


def test_the_trace_keeps_its_lengths_and_is_brought_to_a_rate(tmp_path: Path) -> None:
    asked = [Asked(10.0 + k, 100 + k, 10 + k) for k in range(5)]
    loadgen.write_trace(tmp_path / "t.jsonl", asked, loadgen.ordered(asked), 2.5)
    rows = [json.loads(line) for line in (tmp_path / "t.jsonl").read_text().splitlines()]
    assert [row["input_length"] for row in rows] == [100, 101, 102, 103, 104]
    assert rows[0]["timestamp"] == 0
    assert rows[-1]["timestamp"] == 2000


def test_times_count_in_the_engines_own_seconds() -> None:
    answers = [Answer(400, 11, ttft=2.0, latency=5.0, error="") for _ in range(4)]
    found = figures.of_answers(answers, 4, speed=0.25)
    assert found["failed"] == 0
    assert found["ttft_p50_s"] == 0.5
    assert found["p50_s"] == 1.25
    assert found["good_share"] == 1.0


def test_who_got_no_answer_has_failed_and_never_ends() -> None:
    answers = [
        Answer(10, 5, 0.1, 0.5, ""),
        Answer(0, 0, 0, 0.2, "KV memory is full: the engine died"),
    ]
    found = figures.of_answers(answers, 3, speed=1.0)
    assert found["failed"] == 2
    assert found["failed_for_memory"] == 1
    assert found["p99_s"] == inf


def test_a_record_of_the_load_generator_is_read() -> None:
    record = {
        "metrics": {
            "usage_prompt_tokens": {"value": 140, "unit": "tokens"},
            "usage_completion_tokens": {"value": 21, "unit": "tokens"},
            "time_to_first_token": {"value": 28.7, "unit": "ms"},
            "request_latency": {"value": 281.7, "unit": "ms"},
        }
    }
    answer = loadgen._answer(record)
    assert (answer.prompt, answer.output, answer.error) == (140, 21, "")
    assert answer.ttft == pytest.approx(0.0287)
    assert loadgen._answer({"error": {"message": "gone"}}).error == "gone"


def test_the_simulator_is_given_the_same_servers() -> None:
    specs = fleet.specs()
    assert [spec.gpu for spec in specs] == ["A100-80G", "A100-80G", "H100", "T4"]
    assert specs[1].kv_tokens == 24_000


def test_a_prompt_is_as_long_as_the_trace_says_and_so_is_its_answer_though_nothing_tells_it() -> None:
    asked = [Asked(0.0, 300, 42), Asked(1.0, 1200, 206), Asked(2.0, 9, 700), Asked(3.0, 300, 42)]
    chats = prompts.chats(asked, seed=2)
    assert [prompt.chat(chat, None).tokens for chat in chats] == [300, 1200, 9, 300]
    for request, chat in zip(asked, chats, strict=True):
        assert prompts.answer_tokens(chat) == pytest.approx(request.output, rel=0.05)
    assert len({chat[0]["content"][:16] for chat in chats}) == 4
    assert loadgen.written(chats)[0].keys() == {"messages"}


def test_the_emulated_model_answers_a_prompt_as_it_was_looked_for() -> None:
    (chat,) = prompts.chats([Asked(0.0, 200, 150)], seed=2)
    asked = Sampling(
        stream=True,
        include_usage=True,
        n=1,
        max_tokens=None,
        min_tokens=0,
        ignore_eos=False,
        stop=(),
        seed=None,
        logprobs=False,
    )
    (choice,) = choices(Settings(), prompt.chat(chat, None), asked, None, "max_tokens")
    assert choice.request.output == prompts.answer_tokens(chat)


def test_what_the_simulator_replays_is_what_the_engines_counted_when_it_came() -> None:
    answers = [
        Answer(480, 30, 0.1, 2.0, "", at=104.0),
        Answer(240, 20, 0.1, 1.0, "", at=100.0),
        Answer(0, 0, 0.0, 0.0, "gone", at=102.0),
    ]
    assert simulated.served(answers) == [
        Asked(100.0, 240, 20, session=0),
        Asked(104.0, 480, 30, session=1),
    ]


def test_the_simulator_plays_by_the_wall_and_tells_the_engines_own_seconds() -> None:
    spec = fleet.specs()[0]
    answers = [Answer(400, 50, 1.0, 9.0, "", at=100.0 * k) for k in range(8)]
    whole, half = (simulated.predicted(answers, [spec], speed, seeds=[1]) for speed in (1.0, 0.5))
    assert whole is not None
    assert half is not None
    assert half["p50_s"] == pytest.approx(whole["p50_s"], rel=0.01)
    assert half["good_share"] == whole["good_share"] == 1.0
    assert whole["failed"] == 0
    assert simulated.predicted(answers[:1], [spec], 1.0) is None


def test_small_engines_get_the_same_trace_in_small() -> None:
    asked = [Asked(1.0, 1200, 200), Asked(2.0, 16, 8), Asked(3.0, 7000, 100)]
    assert main._scaled(asked) == [Asked(1.0, 150, 25), Asked(2.0, 8, 4)]


def test_of_real_engines_only_failures_count() -> None:
    def case(system: str, failed: int) -> dict[str, Any]:
        return {"case": {"system": system}, "failed": failed}

    bars = main._real_bars([case("tokenweir", 0), case("smg", 4), case("nginx least_conn", 2)])
    assert [bar.ok for bar in bars] == [True, True]
    bars = main._real_bars([case("tokenweir", 3), case("smg", 2)])
    assert [bar.ok for bar in bars] == [False, False]


def test_a_stream_that_breaks_off_is_no_answer() -> None:
    record = {"metrics": {"time_to_first_token": {"value": 9.0}, "request_latency": {"value": 31.0}}}
    assert loadgen._answer(record).error == "the stream broke off"


def test_tokenweir_is_told_the_memory_that_real_engines_do_not_tell(tmp_path: Path) -> None:
    engine = LlamaEngine.__new__(LlamaEngine)
    engine.name, engine.port = "llama-0", 1
    assert fleet._members([engine])["backends"][0]["kv_capacity"] == fleet.REAL[0][0]
