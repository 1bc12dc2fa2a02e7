"""The shape of a bench's result."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from bench import report
from bench.report import Bar


@pytest.mark.parametrize(
    ("value", "op", "limit", "ok"),
    [
        (15.0, "<=", 15.0, True),
        (15.01, "<=", 15.0, False),
        (0.63, ">=", 0.63, True),
        (0.62, ">=", 0.63, False),
        (0, "==", 0, True),
        (1, "==", 0, False),
        (None, "<=", 15.0, False),
        (math.nan, ">=", 0.0, False),
    ],
)
def test_a_bar_holds_at_its_limit_and_never_unmeasured(value, op, limit, ok):
    assert Bar("x", value, op, limit).ok is ok


def test_the_file_has_the_one_shape_and_no_nan(tmp_path: Path):
    path = report.write(
        "example",
        quick=True,
        seed=7,
        overall={"figure": math.nan},
        cases=[{"case": {"body_kb": 2}, "figure": 1.5}],
        bars=[Bar("a limit", 2, "<=", 1)],
        folder=tmp_path,
    )
    document = json.loads(path.read_text())
    assert path == tmp_path / "example.json"
    assert set(document) == {"bench", "quick", "commit", "machine", "seed", "overall", "cases", "bars"}
    assert document["overall"] == {"figure": None}
    assert document["bars"] == [{"name": "a limit", "value": 2, "limit": 1, "op": "<=", "ok": False}]
    assert document["machine"]["cores"] >= 1


def test_the_data_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TOKENWEIR_DATA", "/somewhere/data")
    assert report.data_folder() == Path("/somewhere/data")
    monkeypatch.delenv("TOKENWEIR_DATA")
    assert report.data_folder() == report.ROOT.parent / "shared" / "data"
