"""`bench/policy/user_log.py`: what people have lying about is read, and what cannot be is named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from bench.policy.user_log import LogError, read


def write(folder: Path, name: str, text: str) -> Path:
    """A log file."""
    path = folder / name
    path.write_text(text)
    return path


def test_csv_with_seconds_in_any_order(tmp_path: Path) -> None:
    path = write(tmp_path, "a.csv", "Timestamp,prompt_tokens,completion_tokens\n12.5,100,20\n10,50,0\n")
    assert [(row.at, row.prompt, row.output) for row in read(path)] == [(0, 50, 1), (2.5, 100, 20)]


def test_csv_with_dates_as_in_the_azure_traces(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    assert read(write(tmp_path, "a.csv", text))[1].at == pytest.approx(4.31, abs=0.01)


def test_jsonl_with_milliseconds_sessions_and_keys_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for k in range(3):
            row = {"time_ms": 1000 * k, "input_length": 5, "output_length": 6, "session": "s", "key": "k"}
            file.write(json.dumps(row) + "\n")
    rows = read(path)
    assert rows[2].at == 2
    assert rows[0].session == rows[1].session is not None
    assert rows[0].key == "k"


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.txt", "", "a .csv or .jsonl file"),
        ("a.csv", "", "at least two requests"),
        ("a.csv", "time,prompt\n1,2\n", "no column tells the output"),
        ("a.csv", "time,prompt,output\n1,2,3\nx,2,3\n", ":3: time: a number or a date"),
        ("a.csv", "time,prompt,output\n1,2,3\n2,many,3\n", ":3: prompt: a number of tokens"),
        ("a.csv", "time,prompt,output\n1,2,3\n2,-1,3\n", ":3: prompt: 0 to"),
        ("a.csv", "time,prompt,output\n1,2,3\n2,nan,3\n", ":3: prompt: 0 to"),
        ("a.jsonl", '{"time": 1, "prompt": 1, "output": 1}\n[1]\n', ":2: an object"),
        ("a.jsonl", "{\n", ":1: no JSON"),
    ],
)
def test_a_log_that_cannot_be_read_says_where_and_why(
    tmp_path: Path, name: str, text: str, wanted: str
) -> None:
    with pytest.raises(LogError, match=wanted):
        read(write(tmp_path, name, text))
