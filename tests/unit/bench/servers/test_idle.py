"""Processors that poll while a bench measures."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from bench.servers import idle


@pytest.fixture
def states(tmp_path: Path) -> Path:
    """A kernel whose idle processors can poll."""
    (tmp_path / "state0").mkdir()
    (tmp_path / "state0/name").write_text("POLL\n")
    return tmp_path


def test_no_delay_is_allowed_while_a_bench_measures(tmp_path: Path, states: Path) -> None:
    latency = tmp_path / "latency"
    latency.touch()
    with idle.awake(latency, states) as polling:
        assert polling
        assert struct.unpack("=i", latency.read_bytes()) == (0,)


def test_a_user_who_may_not_ask_for_it_is_told_so(tmp_path: Path, states: Path) -> None:
    with idle.awake(tmp_path / "missing/latency", states) as polling:
        assert not polling


def test_a_kernel_that_cannot_poll_is_not_asked(tmp_path: Path) -> None:
    latency = tmp_path / "latency"
    latency.touch()
    with idle.awake(latency, tmp_path / "none") as polling:
        assert not polling
    assert latency.read_bytes() == b""
