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
    assert [(row.at, row.prompt, row.output) for row in read(path).asked] == [(0, 50, 1), (2.5, 100, 20)]


def test_csv_with_dates_as_in_the_azure_traces(tmp_path: Path) -> None:
    text = (
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n"
    )
    assert read(write(tmp_path, "a.csv", text)).asked[1].at == pytest.approx(4.31, abs=0.01)


def test_jsonl_with_milliseconds_sessions_and_keys_gzipped(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    with gzip.open(path, "wt") as file:
        for k in range(3):
            row = {"time_ms": 1000 * k, "input_length": 5, "output_length": 6, "session": "s", "key": "k"}
            file.write(json.dumps(row) + "\n")
    rows = read(path).asked
    assert rows[2].at == 2
    assert rows[0].session == rows[1].session is not None
    assert rows[0].key == "k"


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("a.txt", "", "at least two requests"),
        ("a.csv", "time,prompt,output\n", "at least two requests are wanted, found 0"),
        ("a.csv", "\n\n", "at least two requests are wanted, found 0"),
        ("a.log", '10.0.0.1 - - [30/Nov/2026:17:31:11 +0000] "GET /"\n' * 2, "no column tells the time"),
        ("a.csv", "time,prompt,output\n1,2,3\n1,2,3\n", "all requests have the same time"),
        ("a.csv", "", "at least two requests"),
        ("a.csv", "time,prompt\n1,2\n", "no column tells the output"),
        ("a.csv", "time,prompt,output\n1,2,3\nx,2,3\n", ":3: time: a number or a date"),
        ("a.csv", "time,prompt,output\n1,2,3\n2,many,3\n", ":3: prompt: a number of tokens"),
        ("a.csv", "time,prompt,output\n1,2,3\n2,-1,3\n", ":3: prompt: 0 to"),
        ("a.csv", "time,prompt,output\n1,2,3\n2,nan,3\n", ":3: prompt: 0 to"),
        ("a.jsonl", '{"time": 1, "prompt": 1, "output": 1}\n[1]\n', ":2: an object"),
        ("a.csv", "time,prompt,output\n1,2,3\n\n2,,3\n", ":4: prompt: a number of tokens is wanted, got ''"),
        ("a.jsonl", "{\n", ":1: no JSON"),
        ("a.jsonl", '\n{"time": 1, "prompt": 1, "output": 1}\n\n{"time": 2, "pro', ":4: no JSON"),
        (
            "a.jsonl",
            '{"time": 1, "prompt": 1, "output": 1, "hash_ids": 7}\n',
            ":1: hash_ids: a list of numbers",
        ),
    ],
)
def test_a_log_that_cannot_be_read_says_where_and_why(
    tmp_path: Path, name: str, text: str, wanted: str
) -> None:
    with pytest.raises(LogError, match=wanted):
        read(write(tmp_path, name, text))


def test_what_is_no_text_and_an_archive_that_breaks_off_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"time,prompt,output\n" + b"1,2,3\n" * 5000)[:-20])
    with pytest.raises(LogError, match="ended before"):
        read(path)
    path.write_bytes(b"\xff\xfe\x00time")
    with pytest.raises(LogError, match="CSV or JSON lines are wanted"):
        read(path)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("\ufefftime;prompt;output\n1;2;3\n2;4;5\n", [(0, 2, 3), (1, 4, 5)]),
        ("time\tprompt\toutput\n1\t2\t3\n2\t4\t5\n", [(0, 2, 3), (1, 4, 5)]),
        (
            "time,prompt,output\n2026-11-30T17:31:11.250Z,2,3\n2026-11-30T18:31:12.750+01:00,4,5\n",
            [(0, 2, 3), (1.5, 4, 5)],
        ),
        ("time,prompt,output\n1764523871000000000,2,3\n1764523872000000000,4,5\n", [(0, 2, 3), (1, 4, 5)]),
    ],
)
def test_spreadsheets_and_clocks_of_all_kinds_are_read(
    tmp_path: Path, text: str, wanted: list[tuple[float, int, int]]
) -> None:
    rows = read(write(tmp_path, "a.txt", text)).asked
    assert [(row.at, row.prompt, row.output) for row in rows] == wanted


def test_the_access_log_is_read_as_it_is(tmp_path: Path) -> None:
    line = {
        "time": "2026-11-30T17:31:11+00:00",
        "path": "/v1/chat/completions",
        "status": 200,
        "total_s": 1.5,
    }
    served = {"key": "team", "outcome": "ok", "prompt": None, "prompt_estimate": 80, "output": 30}
    refused = {"key": "team", "outcome": "refused", "prompt": None, "prompt_estimate": 80, "output": None}
    lines = [
        line,
        line | served,
        line | refused,
        line | served | {"time": "2026-11-30T17:31:12+00:00", "total_s": 0.25, "prompt": 90},
    ]
    log = read(write(tmp_path, "access.log.1", "".join(json.dumps(each) + "\n" for each in lines)))
    assert [(row.at, row.prompt, row.output, row.key) for row in log.asked] == [
        (0, 80, 30, "team"),
        (2.25, 90, 30, "team"),
    ]
    assert log.without_lengths == 2


def test_the_mooncake_format_tells_milliseconds_sessions_and_what_prompts_share(tmp_path: Path) -> None:
    rows = [
        {"timestamp": 0, "input_length": 1100, "output_length": 9, "hash_ids": [1, 2, 3]},
        {"timestamp": 3000, "input_length": 300, "output_length": 9, "hash_ids": [1]},
        {"timestamp": 6000, "input_length": 1600, "output_length": 9, "hash_ids": [1, 2, 4, 5]},
    ]
    text = "".join(json.dumps(row) + "\n" for row in rows)
    first, short, third = read(write(tmp_path, "a.jsonl", text)).asked
    assert [row.at for row in (first, short, third)] == [0, 3, 6]
    assert (first.hashes, short.hashes, third.hashes) == ((1, 2), (), (1, 2, 4))
    assert first.session == third.session != short.session
