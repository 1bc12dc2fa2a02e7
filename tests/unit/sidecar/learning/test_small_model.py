"""`sidecar/learning/small_model.py`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from sidecar.learning import small_model
from sidecar.learning.small_model import SmallModel

SLEEPS = (sys.executable, "-c", "import time; time.sleep(600)")
ENDS = (sys.executable, "-c", "raise SystemExit(3)")


def model(folder: Path, command: tuple[str, ...]) -> SmallModel:
    return SmallModel(folder / "socket", folder, command)


def test_it_runs_while_it_is_wanted(tmp_path: Path) -> None:
    async def run() -> None:
        small = model(tmp_path, SLEEPS)
        await small.step(False)
        assert not small.running
        await small.step(True)
        assert small.running
        await small.step(False)
        assert not small.running

    asyncio.run(run())


def test_one_that_ends_is_started_again_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(small_model, "monotonic_ms", lambda: now)

    async def run() -> None:
        nonlocal now
        small = model(tmp_path, ENDS)
        await small.step(True)
        assert small._process is not None
        await small._process.wait()
        first = small._process
        await small.step(True)
        assert small._process is first
        now += small_model.AGAIN_MS
        await small.step(True)
        assert small._process is not first
        await small.stop()

    asyncio.run(run())


def test_without_its_packages_it_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(small_model, "NEEDED", ("a_package_that_is_not_there",))

    async def run() -> None:
        small = model(tmp_path, SLEEPS)
        await small.step(True)
        assert not small.running

    asyncio.run(run())
