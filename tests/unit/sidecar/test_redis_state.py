"""`sidecar/redis_state.py`."""

from __future__ import annotations

from structlog.testing import capture_logs

from sidecar.redis_state import NOT_ASKED, RedisState


def test_an_outage_lasts_while_one_part_fails_and_each_reason_is_told_once() -> None:
    state = RedisState()
    assert state.error == NOT_ASKED
    with capture_logs() as logs:
        for _ in range(20):
            state.failed("publish", ConnectionError("full"))
            state.answered("follow")
            state.failed("learning", ConnectionError("wrong type"))
        assert state.error == "full"
        state.answered("publish")
        assert state.error == "wrong type"
        state.rests("learning")
        assert state.error is None
        state.failed("publish", ConnectionError("full"))
    told = [(entry["event"], entry.get("reason")) for entry in logs]
    away = [
        ("redis_away", "full"),
        ("redis_away", "wrong type"),
        ("redis_back", None),
        ("redis_away", "full"),
    ]
    assert told == away
    assert state.errors == 41


def test_a_part_that_rests_says_nothing_of_redis() -> None:
    state = RedisState()
    state.rests("learning")
    assert state.error == NOT_ASKED
