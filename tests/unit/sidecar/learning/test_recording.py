"""Recording completions for training."""

from __future__ import annotations

import base64
import importlib.util
import struct

import pytest
from pyarrow import parquet

from model import records
from sidecar.learning import recording
from sidecar.learning.recording import Recording
from tests.unit.lua.readers import CORE
from tokenweir.contract.records import Completion

VECTOR, WORDS = b"\x00\x00\x80\x3f" * 3, b"\x01\x00\x02\x00"


def record(**members):
    values = {
        "id": "r",
        "gateway": "g",
        "time_ms": 7,
        "model": "m",
        "backend": "a",
        "kind": "chat",
        "n": 2,
        "max_tokens": 100,
        "output": 50,
        "outcome": "ok",
        "finish": "stop",
        "features": 1,
        "vector": base64.b64encode(VECTOR).decode(),
        "words": base64.b64encode(WORDS).decode(),
    }
    return Completion.model_validate(values | members)


def test_a_row_has_what_training_reads():
    row = recording.row(record())
    assert (row["output"], row["ending"], row["limit"]) == (25, "stop", 100)
    assert (row["vector"], row["words"]) == (VECTOR, WORDS)


@pytest.mark.parametrize(
    ("members", "ending"),
    [
        ({"finish": "length"}, "length"),
        ({"finish": "max_tokens"}, "length"),
        ({"finish": "stop"}, "stop"),
        ({"outcome": "client_gone"}, "cut"),
        ({"outcome": "upstream_broke"}, "cut"),
        ({"outcome": "client_gone", "output": None}, None),
        ({"outcome": "refused"}, None),
    ],
)
def test_how_an_output_ended_is_told_apart(members, ending):
    assert recording.ending(record(**members)) == ending


@pytest.mark.parametrize(
    "members", [{"vector": "!"}, {"output": None}, {"outcome": "refused"}, {"vector": ""}]
)
def test_records_that_tell_nothing_are_counted_and_left_out(tmp_path, members):
    kept = Recording(tmp_path)
    kept.add(record(**members))
    assert (kept.rows, kept.refused) == (0, 1)


def test_records_without_features_are_none_of_its_business(tmp_path):
    kept = Recording(tmp_path)
    kept.add(record(features=None))
    assert (kept.rows, kept.refused) == (0, 0)


async def test_rows_are_written_as_training_reads_them(tmp_path):
    kept = Recording(tmp_path)
    for number in range(3):
        kept.add(record(time_ms=number))
    await kept.flush(10**9)
    (path,) = (tmp_path / recording.FOLDER).glob("*.parquet")
    assert recording.count(tmp_path / recording.FOLDER) == 3
    rows = parquet.read_table(path).to_pylist()
    assert [row["time_ms"] for row in rows] == [0, 1, 2]
    assert rows[0]["vector"] == VECTOR


async def test_nothing_is_written_before_it_is_due(tmp_path):
    kept = Recording(tmp_path)
    kept.add(record())
    await kept.step(10**9)
    assert not (tmp_path / recording.FOLDER).exists()


async def test_many_rows_are_written_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "ROWS_OF_A_FILE", 3)
    kept = Recording(tmp_path)
    for _ in range(3):
        kept.add(record())
    await kept.step(10**9)
    assert len(list((tmp_path / recording.FOLDER).glob("*.parquet"))) == 1


def test_the_oldest_files_go_and_the_newest_stays(tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.parquet").write_bytes(b"x" * 100)
    recording.retain(tmp_path, 250)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["3.parquet", "4.parquet"]
    recording.retain(tmp_path, 1)
    assert [path.name for path in tmp_path.iterdir()] == ["4.parquet"]


async def test_a_disk_that_takes_nothing_costs_rows_and_no_more(tmp_path):
    (tmp_path / recording.FOLDER).write_text("in the way")
    kept = Recording(tmp_path)
    kept.add(record())
    await kept.flush(10**9)
    assert kept.dropped == 1


@pytest.fixture
def no_pyarrow(monkeypatch):
    """As after `make up` alone."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "pyarrow" else found(name))


def readable(number):
    vector = struct.pack(f"<{len(CORE.names)}f", *([0.5] * len(CORE.names)))
    return record(
        output=2 * number,
        features=CORE.version,
        vector=base64.b64encode(vector).decode(),
        words=base64.b64encode(WORDS).decode(),
    )


async def test_without_pyarrow_rows_are_written_as_lines_that_training_reads(tmp_path, no_pyarrow):
    kept = Recording(tmp_path)
    for number in (1, 2, 3):
        kept.add(readable(number))
    await kept.flush(10**9)
    (path,) = (tmp_path / recording.FOLDER).iterdir()
    assert path.name.endswith("-3.jsonl.gz")
    found = records.load(tmp_path / recording.FOLDER, CORE)
    assert sorted(found.data.output.tolist()) == [1, 2, 3]
    assert found.data.words.count.tolist() == [2] * 3
    assert not found.dropped


async def test_lines_and_parquet_are_counted_and_read_together(tmp_path, monkeypatch):
    kept = Recording(tmp_path)
    with monkeypatch.context() as without:
        without.setattr(importlib.util, "find_spec", lambda _: None)
        kept.add(readable(1))
        await kept.flush(10**9)
    kept.add(readable(2))
    await kept.flush(10**9)
    folder = tmp_path / recording.FOLDER
    assert {"".join(path.suffixes) for path in folder.iterdir()} == {".jsonl.gz", ".parquet"}
    assert recording.count(folder) == 2
    assert sorted(records.load(folder, CORE).data.output.tolist()) == [1, 2]
    recording.retain(folder, 1)
    assert [path.suffix for path in folder.iterdir()] == [".parquet"]


def test_no_more_rows_wait_than_there_is_room_for(tmp_path, monkeypatch):
    monkeypatch.setattr(recording, "MOST_ROWS", 2)
    kept = Recording(tmp_path)
    for _ in range(5):
        kept.add(record())
    assert kept.dropped == 3
