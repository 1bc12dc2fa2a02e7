"""`bench/policy/scenarios.py`, `workload.py`, `traces.py`."""

from __future__ import annotations

import gzip
import itertools
import json
from pathlib import Path

import pytest
from pydantic import ValidationError

from bench.policy import scenarios, traces, workload
from bench.policy.workload import Burst


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small traces in the formats of the real ones."""
    folder = tmp_path / "traces"
    folder.mkdir()
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [f"2023-11-16 18:{k // 60:02d}:{k % 60:02d}.5000000,{100 + k},{10 + k % 7}" for k in range(300)]
    with gzip.open(folder / "azure2023_conv.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    rows = [
        {"timestamp": 1000 * k, "input_length": 1600, "output_length": 5, "hash_ids": [0, k % 4, 100 + k, 7]}
        for k in range(40)
    ]
    with gzip.open(folder / "mooncake_conversation.jsonl.gz", "wt") as file:
        file.write("\n".join(json.dumps(row) for row in rows))
    monkeypatch.setenv("TOKENWEIR_DATA", str(tmp_path))
    traces._recorded.cache_clear()
    return tmp_path


def test_the_file_is_whole_and_every_cell_has_servers() -> None:
    known = scenarios.load()
    assert len(known.cells) >= 12
    assert len(known.seeds) >= 3
    for cell in known.cells.values():
        assert known.specs(cell)


def test_a_trace_that_is_not_known_is_named(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(scenarios.FILE.read_text().replace("{azure_conv: 1}", "{azure_talk: 1}"))
    with pytest.raises(ValidationError, match="azure_talk"):
        scenarios.load(path)


def test_lengths_stay_and_only_the_rate_is_scaled(data: Path) -> None:
    jobs, left_out = workload.build({"azure_conv": 1}, count=200, rate=5, seed=1, longest=10_000)
    assert left_out == 0
    assert len(jobs) == 200
    assert jobs[-1].arrival == pytest.approx(200 / 5 * 1000, rel=0.01)
    assert all(later.prompt - earlier.prompt == 1 for earlier, later in itertools.pairwise(jobs))


def test_another_seed_is_another_part_of_the_trace(data: Path) -> None:
    firsts = {
        workload.build({"azure_conv": 1}, count=100, rate=5, seed=seed, longest=10_000)[0][0].prompt
        for seed in (1, 2, 3)
    }
    assert len(firsts) == 3


def test_what_no_server_could_hold_is_left_out_and_counted(data: Path) -> None:
    jobs, left_out = workload.build({"azure_conv": 1}, count=300, rate=5, seed=0, longest=200)
    assert len(jobs) + left_out == 300
    assert all(job.prompt + job.output <= 200 for job in jobs)


def test_a_burst_brings_requests_faster_and_the_rest_keeps_its_pace(data: Path) -> None:
    plain, _ = workload.build({"azure_conv": 1}, count=300, rate=10, seed=0, longest=10_000)
    burst, _ = workload.build(
        {"azure_conv": 1}, count=300, rate=10, seed=0, longest=10_000, bursts=[Burst(10, 5, 3)]
    )

    def within(jobs: list, begin: float, end: float) -> int:  # type: ignore[type-arg]
        return sum(begin * 1000 < job.arrival <= end * 1000 for job in jobs)

    assert within(burst, 10, 15) == pytest.approx(3 * within(plain, 10, 15), rel=0.1)
    assert within(burst, 0, 10) == within(plain, 0, 10)
    assert burst[-1].arrival == pytest.approx(plain[-1].arrival - 10_000, rel=0.02)


def test_a_mooncake_session_shares_its_first_two_blocks(data: Path) -> None:
    jobs, _ = workload.build({"mooncake": 1}, count=40, rate=5, seed=0, longest=10_000)
    assert len({job.session for job in jobs}) == 4
    assert all(len(job.hashes) == 1600 // 512 for job in jobs)


def test_a_trace_that_is_missing_says_where_it_can_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKENWEIR_DATA", str(tmp_path))
    traces._recorded.cache_clear()
    with pytest.raises(traces.MissingTraceError, match="AzurePublicDataset"):
        traces.stretch("azure_conv", 10, 1)
