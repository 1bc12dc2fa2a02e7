"""`bench/buffer/simulated.py`: the overload in virtual time."""

from __future__ import annotations

import pytest

from bench.buffer.figures import of_run
from bench.buffer.overload import Load
from bench.buffer.simulated import MAX_WAIT_MS, main, simulate


def test_the_overload_in_virtual_time_has_waiters_that_were_told_a_wait() -> None:
    run = simulate(Load(15, 8, 14), 11)
    figures = of_run(run)
    assert figures["failed"] == 0
    assert figures["overload"] > 1.2
    assert figures["eta_told"] > 50
    told = [one.answer.hints[0].wait for one in run.sent if one.answer.hints]
    assert all(wait is None or wait <= MAX_WAIT_MS / 1000 for wait in told)


def test_a_run_in_virtual_time_is_the_same_each_time() -> None:
    first, again = (of_run(simulate(Load(6, 8, 10), 12)) for _ in range(2))
    assert first == again


def test_the_command_shows_the_figures_of_each_seed_and_their_means(
    capsys: pytest.CaptureFixture[str],
) -> None:
    main(["--seeds", "11-12", "--seconds", "6"])
    shown = capsys.readouterr().out
    assert all(f"│ {row}" in shown for row in ("11", "12", "mean"))
