"""`lua/tokenweir/core/backend/liveness.lua`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

START = 1_000_000.0
SILENT = 60_000.0
"""Age of a snapshot whose sidecar is gone, ms."""


@pytest.fixture
def liveness(require: Callable[[str], Any]) -> Any:
    return require("tokenweir.core.backend.liveness")


@pytest.fixture
def doubtful(liveness: Any, health: Any, h: Any) -> Callable[..., bool]:
    def ask(silence: float, age: float = SILENT, engine: bytes = b"vllm", now: float = START) -> bool:
        return bool(liveness.doubtful(h, engine, silence, age, now, health.DEFAULTS))

    return ask


def test_silence_counts_from_when_work_was_seen(liveness: Any, h: Any) -> None:
    assert liveness.silence(h, 1, START) == 0
    assert liveness.silence(h, 1, START + 700) == 700


def test_a_byte_breaks_the_silence(liveness: Any, health: Any, h: Any) -> None:
    liveness.silence(h, 1, START)
    health.byte(h, START + 500)
    assert liveness.silence(h, 1, START + 700) == 200


def test_without_work_there_is_no_silence(liveness: Any, h: Any) -> None:
    liveness.silence(h, 1, START)
    assert liveness.silence(h, 0, START + 5000) == 0
    assert liveness.silence(h, 1, START + 6000) == 0


def test_a_silent_backend_is_asked_while_the_sidecar_is_silent(doubtful: Callable[..., bool]) -> None:
    assert not doubtful(1400)
    assert doubtful(1500)
    assert not doubtful(60_000, age=1400)


def test_usual_gaps_make_it_wait(doubtful: Callable[..., bool], health: Any, h: Any) -> None:
    health.byte(h, START, 500)
    assert not doubtful(8400)
    assert doubtful(8500)


def test_an_engine_that_may_not_answer_while_it_computes_is_not_asked(doubtful: Callable[..., bool]) -> None:
    assert not doubtful(60_000, engine=b"")


def test_one_that_fails_is_not_asked(doubtful: Callable[..., bool], health: Any, h: Any) -> None:
    for _ in range(3):
        health.failure(h, START, health.CAUSES.status)
    assert not doubtful(60_000)


def test_one_that_does_not_answer_hangs(liveness: Any, health: Any, h: Any) -> None:
    assert liveness.unanswered(h, START, START + 2000, health.DEFAULTS)
    assert health.state(h, START + 2000) == health.EJECTED
    assert h.cause == health.CAUSES.hang


def test_a_byte_since_it_was_asked_counts_for_more(liveness: Any, health: Any, h: Any) -> None:
    health.byte(h, START + 1)
    assert not liveness.unanswered(h, START, START + 2000, health.DEFAULTS)
    assert health.state(h, START + 2000) == health.CLOSED


def test_one_that_hangs_is_asked_on_and_stays_out_until_it_answers(
    liveness: Any, health: Any, h: Any, doubtful: Callable[..., bool]
) -> None:
    now = START
    liveness.unanswered(h, now - 2000, now, health.DEFAULTS)
    for _ in range(20):
        now += 2000 + liveness.PAUSE_MS
        assert health.state(h, now) == health.EJECTED
        assert doubtful(0, now=now)
        assert not liveness.unanswered(h, now - 2000, now, health.DEFAULTS)
    liveness.answered(h, now + 100)
    assert health.state(h, now + 100) == health.HALF_OPEN
    assert health.probe(h, now + 100)


def test_an_answer_ends_no_other_ejection(liveness: Any, health: Any, h: Any) -> None:
    for _ in range(3):
        health.failure(h, START, health.CAUSES.status)
    liveness.answered(h, START + 1)
    assert health.state(h, START + 1) == health.EJECTED
    assert not liveness.unanswered(h, START, START + 2000, health.DEFAULTS)
    assert health.state(h, START + 5000) == health.HALF_OPEN
