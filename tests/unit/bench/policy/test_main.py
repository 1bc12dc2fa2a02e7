"""`python -m bench.policy`: the record grows part by part, and goes on where it was left."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from bench import report
from bench.policy import __main__ as bench
from bench.policy import article, plot, scenarios, traces

KNOWN = scenarios.load()


@pytest.fixture
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A bench of two small cells that writes into a folder of its own, over traces of 60 requests."""
    (tmp_path / "traces").mkdir()
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [f"2023-11-16 18:00:{k % 60:02d}.5000000,{100 + k},{10 + k % 7}" for k in range(60)]
    with gzip.open(tmp_path / "traces" / "azure2023_conv.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    monkeypatch.setenv("TOKENWEIR_DATA", str(tmp_path))
    traces._recorded.cache_clear()
    names = ("conv-13b-preempt", "conv-13b-crash")
    cells = {name: KNOWN.cells[name].model_copy(update={"requests": 30}) for name in names}
    known = KNOWN.model_copy(update={"cells": cells})
    monkeypatch.setattr(scenarios, "load", lambda: known)
    monkeypatch.setattr(article, "limits", lambda known, series: [])
    monkeypatch.setattr(report, "RESULTS", tmp_path)
    monkeypatch.setattr(report, "ROOT", tmp_path)
    monkeypatch.setattr(plot, "plot", lambda folder, cases: None)
    return tmp_path / "policy.json"


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    """Call the bench with two quick policies."""
    monkeypatch.setattr(sys, "argv", ["bench.policy", "--processes", "1", *arguments])
    return bench.main()


def rows(path: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """What was recorded, by cell and policy."""
    cases = json.loads(path.read_text())["cases"]
    return {
        (case["case"]["cell"], case["case"]["policy"]): case for case in cases if "policy" in case["case"]
    }


TWO = ("--policy", "nginx_least_conn", "--policy", "predictive")


def test_it_goes_on_with_the_parts_that_the_record_lacks(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(monkeypatch, "--cells", "conv-13b-crash", *TWO) == 0
    first = rows(results)
    assert set(first) == {("conv-13b-crash", "nginx_least_conn"), ("conv-13b-crash", "predictive")}
    assert first["conv-13b-crash", "predictive"]["case"]["seeds"] == KNOWN.seeds
    capsys.readouterr()
    assert run(monkeypatch, "--resume", "--cells", "conv-13b-crash,conv-13b-preempt", *TWO) == 0
    said = capsys.readouterr().out
    assert "3/4 conv-13b-preempt" in said
    assert "1/4 conv-13b-crash" not in said
    assert len(rows(results)) == 4


def test_single_rows_are_renewed_and_the_others_kept(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(monkeypatch, "--cells", "conv-13b-crash", *TWO)
    document = json.loads(results.read_text())
    for case in document["cases"]:
        case["good_share"] = 0.5
    results.write_text(json.dumps(document))
    run(monkeypatch, "--cells", "conv-13b-crash", "--policy", "predictive")
    found = rows(results)
    assert found["conv-13b-crash", "nginx_least_conn"]["good_share"] == 0.5
    assert found["conv-13b-crash", "predictive"]["good_share"] == 1


def test_tuning_writes_nothing(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(monkeypatch, "--tuning", "--cells", "conv-13b-crash", *TWO) == 0
    assert not results.exists()


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("--cells", "conv-moon"), "no cell is named 'conv-moon'; known: conv-13b-preempt"),
        (("--policy", "best"), "no policy is named 'best'; known: predictive"),
    ],
)
def test_what_is_not_known_is_named(
    results: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    wanted: str,
) -> None:
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *arguments)
    assert ended.value.code == 2
    assert wanted in " ".join(capsys.readouterr().err.split())
