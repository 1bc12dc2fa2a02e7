"""`python -m bench NAME`."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.__main__ import main, names
from bench.report import ROOT
from tokenweir.interrupts import STATUS


def test_an_unknown_name_is_told_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["overhaed"]) == 2
    told = capsys.readouterr().err
    assert "'overhaed'" in told
    assert "overhead" in told


def test_without_a_name_all_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert ", ".join(names()) in capsys.readouterr().err


def test_the_arguments_reach_the_bench() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "scan", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "--quick" in done.stdout


@contextmanager
def running(name: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [sys.executable, "-m", "bench", name],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        yield process
        process.kill()


def result(name: str) -> tuple[float, bytes]:
    path: Path = ROOT / "bench" / "results" / f"{name}.json"
    return path.stat().st_mtime, path.read_bytes()


def test_ctrl_c_ends_a_bench_with_one_line_and_changes_no_result() -> None:
    before = result("scan")
    with running("scan") as process:
        time.sleep(2)
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=30)[0]
    assert process.returncode == STATUS
    assert told.endswith("\ninterrupted\n")
    assert "Traceback" not in told
    assert result("scan") == before
