"""`model/records.py`: files of completions."""

from __future__ import annotations

import base64
import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from model import records
from model.core import ENDINGS, Core
from tests.unit.lua.readers import CORE


def raw(text: str = "Hi", output: Any = 10, **more: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": text}], **more.pop("members", {})}
    return {"body": body, "output": output, **more}


def recorded(core: Core = CORE, **changes: Any) -> dict[str, Any]:
    vector = np.linspace(0, 1, len(core.names)).astype("<f4").tobytes()
    words = np.array([1, 5, 9], "<u2").tobytes()
    row = {
        "time_ms": 1, "model": "m", "output": 12.0, "ending": "stop", "limit": None, "features": core.version,
        "vector": base64.b64encode(vector).decode(), "words": base64.b64encode(words).decode(),
    }  # fmt: skip
    return row | changes


def lines(path: Path, rows: list[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_requests_as_they_were_sent_are_read_by_the_gateway_s_code(tmp_path: Path) -> None:
    rows = [
        raw("What is love?", 30),
        raw("List 5", 40, finish="length", members={"max_tokens": 40}),
        raw("Hi", 5, finish="cut"),
    ]
    found = records.load(lines(tmp_path / "a.jsonl", rows), CORE)
    assert found.data.output.tolist() == [30, 40, 5]
    assert found.data.limit.tolist() == [-1, 40, -1]
    assert found.data.ending.tolist() == [ENDINGS["stop"], ENDINGS["length"], ENDINGS["cut"]]
    assert not found.dropped


def test_the_past_of_raw_requests_is_played_in_the_order_of_time(tmp_path: Path) -> None:
    rows = [raw(output=100, key="k", time=k) for k in (3, 1, 2)]
    found = records.load(lines(tmp_path / "a.jsonl", rows), CORE)
    counts = found.data.vectors[:, CORE.names.index("key_count")]
    assert np.round(np.expm1(counts)).tolist() == [0, 1, 2]


def test_rows_that_ask_the_same_are_one_group(tmp_path: Path) -> None:
    found = records.load(lines(tmp_path / "a.jsonl", [raw("a b"), raw("c d"), raw("a b")]), CORE)
    assert found.data.group.tolist() == [0, 1, 0]


def test_recorded_rows_are_read_from_lines_and_from_parquet(tmp_path: Path) -> None:
    rows = [recorded(output=float(k), limit=100.0 if k else None) for k in range(3)]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for path in (lines(tmp_path / "a.jsonl", rows), tmp_path / "a.parquet"):
        data = records.load(path, CORE).data
        assert data.output.tolist() == [0, 1, 2]
        assert data.limit.tolist() == [-1, 100, 100]
        assert data.words.count.tolist() == [3, 3, 3]
        assert data.vectors[0, -1] == 1


def test_a_folder_is_all_its_parquet_files(tmp_path: Path) -> None:
    for name, time in (("b", 1), ("a", 2)):
        table = pa.Table.from_pylist([recorded(output=float(time), time_ms=time)])
        parquet.write_table(table, tmp_path / f"{name}.parquet")
    assert records.load(tmp_path, CORE).data.output.tolist() == [1, 2]


def test_compressed_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(json.dumps(raw()).encode()))
    assert len(records.load(path, CORE).data) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"output": float("nan")}, "absurd_output"),
        ({"output": -1}, "absurd_output"),
        ({"output": 1e12}, "absurd_output"),
        ({"output": None}, "absurd_output"),
        ({"output": True}, "absurd_output"),
        ({"limit": float("inf")}, "absurd_limit"),
        ({"ending": "why"}, "no_ending"),
        ({"features": 0}, "other_features"),
        ({"vector": "AAAA"}, "no_vector"),
        ({"vector": "!"}, "no_vector"),
        ({"words": base64.b64encode(b"\xff\xff").decode()}, "absurd_words"),
        ({"model": ""}, "no_model"),
    ],
)
def test_a_poisoned_row_is_left_out_and_counted(tmp_path: Path, changes: dict[str, Any], reason: str) -> None:
    path = lines(tmp_path / "a.jsonl", [recorded(), recorded(**changes)])
    found = records.load(path, CORE)
    assert (len(found.data), dict(found.dropped)) == (1, {reason: 1})


def test_a_vector_that_is_not_finite_is_left_out(tmp_path: Path) -> None:
    vector = np.full(len(CORE.names), np.nan, "<f4").tobytes()
    rows = [recorded(), recorded(vector=base64.b64encode(vector).decode())]
    assert dict(records.load(lines(tmp_path / "a.jsonl", rows), CORE).dropped) == {"absurd_vector": 1}


def test_a_body_that_the_gateway_would_refuse_is_left_out(tmp_path: Path) -> None:
    rows = [raw(), {"body": {"messages": "x"}, "output": 3}, {"body": "[]", "output": 3}]
    found = records.load(lines(tmp_path / "a.jsonl", rows), CORE)
    assert dict(found.dropped) == {"refused_body": 1, "no_body": 1}


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"prompt": "x", "output": 3}], "columns output, prompt; missing: body"),
        ([{"body": {}}], "missing: output"),
        ([raw(output=-1)], "none of 1 rows can be used: 1 absurd_output"),
        (["text"], "line 1: a JSON object is wanted"),
        ([], "is empty"),
    ],
)
def test_a_file_that_cannot_be_used_says_what_is_wrong(tmp_path: Path, rows: list[Any], said: str) -> None:
    with pytest.raises(records.DataError) as refused:
        records.load(lines(tmp_path / "a.jsonl", rows), CORE)
    assert said in str(refused.value)


def test_a_file_that_is_no_json_says_which_line(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps(raw()) + "\n{oops\n")
    with pytest.raises(records.DataError, match="line 2: not JSON"):
        records.load(path, CORE)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(records.DataError, match="does not exist"):
        records.load(tmp_path / "none.jsonl", CORE)


def test_a_damaged_parquet_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(records.DataError, match="is no Parquet file"):
        records.load(tmp_path / "a.parquet", CORE)
