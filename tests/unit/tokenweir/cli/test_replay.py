"""`tokenweir replay`."""

from __future__ import annotations

import random
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.documentation import blocks
from tokenweir.cli import app


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """A log of 150 requests."""
    rng, at = random.Random(1), 0.0
    lines = ["time,prompt_tokens,completion_tokens"]
    for _ in range(150):
        at += rng.expovariate(4)
        lines.append(f"{at:.3f},{rng.randint(20, 3000)},{rng.randint(5, 300)}")
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def test_it_shows_what_each_policy_would_have_given(log: Path) -> None:
    result = CliRunner().invoke(app, ["replay", str(log), "--servers", "2"])
    assert result.exit_code == 0, result.output
    assert "150 requests" in result.output
    for policy in ("nginx_least_conn", "predictive", "dynamo"):
        assert policy in result.output


def test_policies_and_servers_can_be_chosen(log: Path) -> None:
    asked = ["--policies", "predictive, ewma", "--gpu", "T4", "--precision", "int4", "--kind", "crash"]
    result = CliRunner().invoke(app, ["replay", str(log), *asked, "--rate", "1"])
    assert result.exit_code == 0, result.output
    assert "ewma" in result.output
    assert "dynamo" not in result.output


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (["--policies", "best"], "no policy is named 'best'"),
        (["--gpu", "GX9"], "unknown GPU 'GX9'"),
        (["--gpu", "T4"], "use a smaller precision or more GPUs"),
        (["--kind", "melt"], "--kind: one of preempt, abort, crash"),
        (["--capacity", "32"], "no request of"),
    ],
)
def test_what_cannot_be_is_named(log: Path, asked: list[str], wanted: str) -> None:
    result = CliRunner().invoke(app, ["replay", str(log), *asked])
    assert result.exit_code == 1
    assert wanted in result.output


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["replay", str(tmp_path / "none.csv")])
    assert result.exit_code == 1
    assert "none.csv" in result.output


def test_the_documented_command_replays_the_documented_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "requests.csv").write_text(blocks("docs/simulator.md", "csv", "example")[0])
    command = shlex.split(blocks("docs/simulator.md", "sh", "tested")[0])
    assert command[:3] == [".venv/bin/python", "-m", "tokenweir"]
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(app, command[3:])
    assert result.exit_code == 0, result.output
    assert "5 requests" in result.output
