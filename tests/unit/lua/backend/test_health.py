"""`lua/tokenweir/core/backend/health.lua`."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

HEALTH = new_runtime().eval(b'require "tokenweir.core.backend.health"')
START = 1_000_000.0


def fail(health: Any, h: Any, times: int, now: float = START) -> bool:
    """So many failures in a row; whether the last ejected."""
    ejected = False
    for _ in range(times):
        ejected = health.failure(h, now, health.CAUSES.status)
    return ejected


def test_the_struct_is_16_doubles(health: Any) -> None:
    assert health.SIZE == 16 * 8


def test_three_failures_in_a_row_eject(health: Any, h: Any) -> None:
    assert fail(health, h, 2) is False
    assert health.usable(h, START) is True
    assert fail(health, h, 1) is True
    assert health.state(h, START) == health.EJECTED
    assert health.usable(h, START) is False


def test_a_success_in_between_starts_the_count_anew(health: Any, h: Any) -> None:
    fail(health, h, 2)
    health.success(h, START)
    fail(health, h, 2)
    assert health.state(h, START) == health.CLOSED


@pytest.mark.parametrize("status", [200, 400, 401, 404, 408, 413, 422, 429, 499, 501, 505])
def test_answers_that_say_nothing_about_health_never_count(health: Any, status: int) -> None:
    assert health.counts(status) is False


@pytest.mark.parametrize("status", [500, 502, 503, 504, 599, 600, 999])
def test_answers_of_a_failing_server_count(health: Any, status: int) -> None:
    assert health.counts(status) is True


@pytest.mark.parametrize("status", [401, 403, 404, 405, 501])
def test_a_backend_that_does_not_know_the_request_refuses_it(health: Any, status: int) -> None:
    assert health.refuses(status) is True
    assert health.counts(status) is False


@pytest.mark.parametrize("status", [200, 400, 413, 422, 429, 500, 503])
def test_what_a_client_may_bring_about_is_no_refusal(health: Any, status: int) -> None:
    assert health.refuses(status) is False


def test_refusals_neither_eject_nor_count_as_success(health: Any, h: Any) -> None:
    fail(health, h, 2)
    for _ in range(50):
        health.refusal(h, START)
    assert health.state(h, START) == health.CLOSED
    assert fail(health, h, 1) is True, "no refusal starts the count of failures anew"


def test_the_share_of_refusals_makes_a_backend_dear_and_fades(health: Any, h: Any) -> None:
    assert health.unserved_rate(h, START) == 0
    for _ in range(30):
        health.refusal(h, START)
    assert health.unserved_rate(h, START) > 0.9
    assert health.error_rate(h, START) == 0
    assert health.unserved_rate(h, START + 20_000) == pytest.approx(0.24, abs=0.01)
    for _ in range(30):
        health.success(h, START)
    assert health.unserved_rate(h, START) < 0.1


def test_the_ejection_doubles_from_five_to_sixty_seconds(health: Any, h: Any) -> None:
    fail(health, h, 3)
    now, waits = START, []
    for _ in range(6):
        waits.append(h.ejected_until - now)
        now = h.ejected_until
        assert health.probe(h, now) is True
        assert health.failure(h, now, health.CAUSES.connect) is True
    assert waits == [5000, 10000, 20000, 40000, 60000, 60000]


def test_half_open_lets_one_probe_through_at_a_time(health: Any, h: Any) -> None:
    fail(health, h, 3)
    now = START + 5000
    assert health.state(h, now) == health.HALF_OPEN
    assert health.probe(h, now) is True
    assert health.state(h, now) == health.PROBING
    assert health.usable(h, now) is False
    assert health.probe(h, now) is False


def test_a_probe_that_succeeds_closes(health: Any, h: Any) -> None:
    fail(health, h, 3)
    health.probe(h, START + 5000)
    assert health.success(h, START + 5100) is True
    assert health.state(h, START + 5100) == health.CLOSED


def test_a_backend_in_doubt_is_half_open_until_it_has_served_once(health: Any, h: Any) -> None:
    health.doubt(h, START - 5000, START)
    assert health.probe(h, START) is True
    assert health.usable(h, START) is False
    health.success(h, START + 10)
    health.doubt(h, START - 5000, START + 20)
    assert health.state(h, START + 20) == health.CLOSED, "it came back after that was said"
    health.doubt(h, START + 30, START + 40)
    assert health.state(h, START + 40) == health.HALF_OPEN


def test_the_first_byte_ends_a_doubt(health: Any, h: Any) -> None:
    health.doubt(h, START - 3000, START)
    health.probe(h, START)
    assert health.byte(h, START + 10) is True
    assert health.state(h, START + 10) == health.CLOSED
    health.doubt(h, START + 5, START + 3005)
    assert health.state(h, START + 3005) == health.CLOSED, "it has been heard of since then"


def test_a_probe_of_which_nothing_is_heard_makes_room_for_the_next(health: Any, h: Any) -> None:
    fail(health, h, 3)
    health.probe(h, START + 5000)
    assert health.state(h, START + 5000 + 30000) == health.HALF_OPEN


def test_a_probe_that_tells_nothing_makes_room_for_the_next_at_once(health: Any, h: Any) -> None:
    fail(health, h, 3)
    health.probe(h, START + 5000)
    health.abandon(h, START + 5100)
    assert health.state(h, START + 5100) == health.HALF_OPEN


def test_a_late_success_does_not_end_an_ejection(health: Any, h: Any) -> None:
    fail(health, h, 3)
    health.success(h, START + 100)
    assert health.state(h, START + 200) == health.EJECTED


def test_failures_that_were_under_way_do_not_lengthen_an_ejection(health: Any, h: Any) -> None:
    fail(health, h, 50)
    assert h.ejected_until == START + 5000


def test_the_back_off_starts_anew_after_a_healthy_minute(health: Any, h: Any) -> None:
    fail(health, h, 3)
    health.probe(h, START + 5000)
    health.success(h, START + 5000)
    fail(health, h, 3, START + 6000)
    assert h.ejected_until == START + 6000 + 10000, "a relapse is ejected for longer"
    health.probe(h, START + 16000)
    health.success(h, START + 16000)
    fail(health, h, 3, START + 80000)
    assert h.ejected_until == START + 85000


def test_a_backend_that_fails_half_of_its_requests_is_ejected(health: Any, h: Any) -> None:
    for k in range(200):
        if k % 2:
            health.success(h, START + k)
        elif health.failure(h, START + k, health.CAUSES.status):
            break
    assert health.state(h, START + 200) == health.EJECTED
    assert h.outcomes <= 20


def test_a_backend_that_rarely_fails_stays(health: Any, h: Any) -> None:
    for k in range(1000):
        if k % 10:
            health.success(h, START + k)
        else:
            health.failure(h, START + k, health.CAUSES.status)
    assert health.state(h, START + 1000) == health.CLOSED


def test_the_share_of_failures_fades_without_traffic(health: Any, h: Any) -> None:
    fail(health, h, 2)
    fresh = health.error_rate(h, START)
    assert fresh > 0.15
    assert health.error_rate(h, START + 10_000) == pytest.approx(fresh / 2)
    assert health.error_rate(h, START + 200_000) < 1e-4


class TestHang:
    """Flowing streams silent for max(3 s, 20 x own gap), or two failed scrapes; its counters stand still."""

    @pytest.fixture
    def flowing(self, health: Any, h: Any) -> Any:
        """A backend whose streams had a byte every 50 ms, the last at START."""
        for k in range(100):
            health.byte(h, START - 50 * (99 - k), 50 if k else None)
        return h

    def test_silence_of_flowing_streams_with_counters_that_stand_still(
        self, health: Any, flowing: Any
    ) -> None:
        assert health.stalled(flowing, 4, START + 2900, 2900, 0, 0) is False
        assert health.stalled(flowing, 4, START + 3000, 2600, 0, 0) is True

    def test_without_counters_the_silence_of_several_streams_decides(self, health: Any, flowing: Any) -> None:
        assert health.stalled(flowing, 4, START + 3000, None, 0, 0) is True
        assert health.stalled(flowing, 4, START + 3000, -1, 0, 0) is True

    def test_counters_that_move_are_no_hang(self, health: Any, flowing: Any) -> None:
        assert health.stalled(flowing, 4, START + 60_000, 100, 0, 0) is False

    def test_a_slow_engine_gets_twenty_of_its_own_gaps(self, health: Any, h: Any) -> None:
        for k in range(200):
            health.byte(h, START - 400 * (199 - k), 400 if k else None)
        assert h.gap == pytest.approx(400)
        assert health.stalled(h, 2, START + 7900, None, 0, 0) is False
        assert health.stalled(h, 2, START + 8100, None, 0, 0) is True

    def test_one_silent_stream_alone_may_be_its_client_s_fault(self, health: Any, flowing: Any) -> None:
        assert health.stalled(flowing, 1, START + 60_000, None, 0, 0) is False
        assert health.stalled(flowing, 1, START + 60_000, None, 1, 0) is True, "a look failed"
        assert health.stalled(flowing, 1, START + 60_000, 60_000, 0, 0) is True, "the counters stand still"

    def test_a_long_prefill_is_no_hang(self, health: Any, flowing: Any) -> None:
        assert health.stalled(flowing, 4, START + 9000, None, 0, 4000) is False
        assert health.stalled(flowing, 4, START + 12_000, None, 0, 4000) is True

    def test_requests_that_do_not_stream_are_no_hang(self, health: Any, h: Any) -> None:
        assert health.stalled(h, 0, START + 60_000, None, 0, 0) is False
        assert health.stalled(h, 0, START + 60_000, 60_000, 0, 0) is False

    def test_two_failed_scrapes_with_counters_that_stand_still(self, health: Any, h: Any) -> None:
        assert health.stalled(h, 0, START, 3000, 1, 0) is False
        assert health.stalled(h, 0, START, 3000, 2, 0) is True

    def test_failed_scrapes_alone_are_no_hang(self, health: Any, flowing: Any) -> None:
        assert health.stalled(flowing, 0, START + 60_000, None, 5, 0) is False, "counters not known"
        assert health.stalled(flowing, 3, START + 100, 60_000, 5, 0) is False, "bytes still come"

    def test_a_byte_brings_a_hung_backend_back(self, health: Any, flowing: Any) -> None:
        assert health.hang(flowing, START + 3000) is True
        assert health.usable(flowing, START + 3000) is False
        assert health.byte(flowing, START + 4000, 4000) is True
        assert health.usable(flowing, START + 4000) is True

    def test_a_hang_is_told_once(self, health: Any, h: Any) -> None:
        assert health.hang(h, START) is True
        assert health.hang(h, START + 100) is False
        assert h.ejected_until == START + 5000


EVENT = st.tuples(
    st.sampled_from(("success", "failure", "probe", "abandon", "byte", "hang", "nothing")),
    st.floats(0, 100_000),
)


@settings(max_examples=300)
@given(events=st.lists(EVENT, max_size=60))
def test_half_open_is_always_left(events: list[tuple[str, float]]) -> None:
    rows = HEALTH.new(1)
    h, now = rows[0], START
    for name, pause in events:
        now += pause
        if name == "failure":
            HEALTH.failure(h, now, HEALTH.CAUSES.status)
        elif name == "byte":
            HEALTH.byte(h, now, pause)
        elif name != "nothing":
            getattr(HEALTH, name)(h, now)
        assert h.ejected_until - now <= 60_000 + 1e-6
        assert h.probe_until - now <= 30_000 + 1e-6
        assert 0 <= h.error_rate <= 1
        assert h.gap >= 0
    # whatever happened, after the longest ejection and lease a request may go, and its success closes
    now += 60_000 + 30_000
    assert HEALTH.usable(h, now) is True
    HEALTH.probe(h, now)
    HEALTH.success(h, now + 1)
    assert HEALTH.state(h, now + 1) == HEALTH.CLOSED
    del rows
