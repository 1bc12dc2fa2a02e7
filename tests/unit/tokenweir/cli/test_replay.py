"""`tokenweir replay`."""

from __future__ import annotations

import random
import shlex
import subprocess
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.documentation import blocks
from tokenweir.cli import app


class _Without(MetaPathFinder):
    """An installation that lacks a package."""

    def __init__(self, missing: str) -> None:
        self._missing = missing

    def find_spec(self, name: str, path: Sequence[str] | None, target: object = None) -> ModuleSpec | None:
        """Not found."""
        if name == self._missing or name.startswith(f"{self._missing}."):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


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


def test_a_log_that_is_not_there_and_a_model_that_does_not_fit_are_told_with_what_to_do(log: Path) -> None:
    missing = CliRunner().invoke(app, ["replay", "nowhere.csv"])
    assert missing.exit_code == 1
    assert "nowhere.csv: No such file or directory; a CSV or JSON lines file is wanted" in missing.output
    large = CliRunner().invoke(app, ["replay", str(log), "--gpu", "T4"])
    assert large.exit_code == 1
    assert "--precision" in large.output


def test_policies_and_servers_can_be_chosen(log: Path) -> None:
    asked = ["--policies", "predictive, ewma", "--gpu", "T4", "--precision", "int4", "--kind", "crash"]
    result = CliRunner().invoke(app, ["replay", str(log), *asked, "--rate", "1"])
    assert result.exit_code == 0, result.output
    assert "ewma" in result.output
    assert "dynamo" not in result.output


def test_servers_of_several_kinds_stand_beside_each_other(log: Path) -> None:
    asked = ["--fleet", "2xA100-80G, T4:int4", "--policies", "predictive"]
    result = CliRunner().invoke(app, ["replay", str(log), *asked])
    assert result.exit_code == 0, result.output
    assert "2 x A100-80G fp16 (" in result.output
    assert "1 x T4 int4 (" in result.output


@pytest.mark.parametrize(
    ("asked", "wanted"),
    [
        (["--policies", "best"], "no policy is named 'best'"),
        (["--gpu", "GX9"], "unknown GPU 'GX9'"),
        (["--gpu", "T4"], "use a smaller precision or more GPUs"),
        (["--kind", "melt"], "--kind: one of preempt, abort, crash"),
        (["--capacity", "32"], "no request of"),
        (["--fleet", "2xH100", "--gpu", "T4"], "give either --fleet, or --servers and --gpu"),
        (["--fleet", "2xH100,,T4"], "--fleet: '' names no servers; a fleet is written like"),
        (["--fleet", "0xH100"], "--fleet: '0xH100': a fleet has 1 to 2,000 servers"),
        (["--fleet", "H100,GX9"], "unknown GPU 'GX9'"),
        (["--fleet", "H100,T4"], "use a smaller precision or more GPUs (--fleet)"),
        (["--fleet", "T4:int3"], "unknown precision 'int3'"),
    ],
)
def test_what_cannot_be_is_named(log: Path, asked: list[str], wanted: str) -> None:
    result = CliRunner().invoke(app, ["replay", str(log), *asked])
    assert result.exit_code == 1
    assert wanted in result.output


@pytest.mark.parametrize(
    ("missing", "wanted"),
    [
        ("lupa.luajit21", "the simulator needs lupa, which is not installed here: run `make up`"),
        ("bench.policy", "the simulator is in the folder bench/ of Tokenweir's repository"),
    ],
)
def test_what_is_not_installed_is_named(
    log: Path, monkeypatch: pytest.MonkeyPatch, missing: str, wanted: str
) -> None:
    for name in [name for name in sys.modules if name == missing or name.startswith(f"{missing}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "meta_path", [_Without(missing), *sys.meta_path])
    result = CliRunner().invoke(app, ["replay", str(log)])
    assert result.exit_code == 1
    assert wanted in result.output


def test_what_make_up_installs_is_enough() -> None:
    """Every package outside the standard library that the simulator imports is among `requirements.in`."""
    wanted = Path("requirements.in").read_text().split()
    probe = (
        "import sys, bench.policy.replay, bench.policy.table, bench.policy.user_log, tokenweir.luavm as vm;"
        "vm.new_runtime();"
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", probe], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "lupa" in wanted
    assert not {"matplotlib", "numpy", "scipy", "sklearn", "pyarrow"} & set(loaded)


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
