"""The emulated engine against the recorded run of a real one."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench.engine import figures
from bench.engine.recording import FOLDER, MissingDataError, load
from bench.engine.replay import replay
from bench.report import data_folder

recorded = pytest.mark.skipif(
    not (data_folder() / FOLDER).exists(), reason=f"the recorded run is not in {data_folder()}"
)


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    recording = load()
    replayed = replay(recording)
    return figures.latencies(recording, replayed) + figures.curves(recording, replayed)


@recorded
def test_every_latency_and_curve_is_within_fifteen_percent_of_the_real_run(
    cases: list[dict[str, Any]],
) -> None:
    assert [bar.name for bar in figures.bars(cases) if not bar.ok] == []
    assert len(cases) == 9


@recorded
def test_the_replay_gives_the_same_figures_every_time(cases: list[dict[str, Any]]) -> None:
    recording = load()
    assert figures.latencies(recording, replay(recording)) == cases[:6]


@recorded
def test_the_run_overloads_the_engine_so_that_the_drain_rate_is_tested() -> None:
    replayed = replay(load())
    assert replayed.counters.preemptions > 50
    assert max(second.waiting for second in replayed.curve) > 200


def test_the_committed_result_meets_its_bars(root: Path) -> None:
    result = json.loads((root / "bench/results/engine.json").read_text())
    assert [bar["name"] for bar in result["bars"] if not bar["ok"]] == []


def test_a_missing_recording_is_named_with_its_source(tmp_path: Path) -> None:
    with pytest.raises(MissingDataError, match=r"set TOKENWEIR_DATA .*casys-kaist/LLMServingSim"):
        load(tmp_path)
