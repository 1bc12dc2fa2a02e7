"""`lua/tokenweir/core/sessions/`: what of a prompt the backends' caches hold."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.fleets import backend, equal
from tests.unit.lua.sessions.sessions import Sessions

LARGE = {"capacity": 100_000}


def test_what_a_session_left_behind_is_known_at_its_end(lua: Any) -> None:
    sessions = Sessions(lua, *equal(4, **LARGE))
    r = sessions.request(1, prompt=2000)
    assert sessions.credit(r) == {}
    name = sessions.pick(r)
    sessions.end(r, output=500)
    assert sessions.credit(sessions.request(1, prompt=4000)) == {name: 2500}
    assert sessions.credit(sessions.request(1, prompt=1000)) == {name: 1000}
    assert sessions.credit(sessions.request(2, prompt=4000)) == {}


def test_what_was_pushed_out_of_a_cache_by_others_counts_no_more(lua: Any) -> None:
    sessions = Sessions(lua, backend("a", capacity=16_000))
    left = []
    for k in range(1, 7):
        sessions.serve(k, prompt=2900)
        left.append(sessions.credit(sessions.request(1, prompt=2900)).get("a", 0))
    # The end of a prompt goes first, then its beginning.
    assert left == [2900, 2900, 2900, 2900, 2900, 1000]
    assert sessions.credit(sessions.request(5, prompt=2900)) == {"a": 2900}
    sessions.serve(7, prompt=2900)
    assert not sessions.credit(sessions.request(1, prompt=2900))


def test_prompts_in_flight_leave_less_room_for_what_is_cached(lua: Any) -> None:
    sessions = Sessions(lua, backend("a", capacity=16_000))
    sessions.serve(1, prompt=4000)
    sessions.serve(2, prompt=4000)
    assert sessions.credit(sessions.request(1, prompt=4000))
    sessions.fill("a", 0.8)
    assert not sessions.credit(sessions.request(1, prompt=4000))


def test_a_restarted_backend_has_nothing(lua: Any) -> None:
    backends = equal(2, **LARGE)
    sessions = Sessions(lua, *backends)
    sessions.serve(1, prompt=4000)
    assert sessions.credit(sessions.request(1, prompt=4000))
    sessions.fleet(*[b | {"state": "starting"} for b in backends])
    sessions.fleet(*backends)
    assert not sessions.credit(sessions.request(1, prompt=4000))


def test_an_engine_that_finds_nothing_in_its_cache_is_believed(lua: Any) -> None:
    sessions = Sessions(lua, backend("a", capacity=1_000_000))
    for _ in range(60):
        r = sessions.request(1, prompt=4000)
        sessions.pick(r)
        sessions.end(r, cached=0)
    assert sessions.credit(sessions.request(1, prompt=4000))["a"] < 100
    for _ in range(60):
        r = sessions.request(1, prompt=4000)
        sessions.pick(r)
        sessions.end(r, cached=3900)
    assert sessions.credit(sessions.request(1, prompt=4000))["a"] > 3850


class TestPrefixes:
    """Beginnings that prompts of different sessions share."""

    def test_a_beginning_that_was_served_somewhere_counts_there(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(4, **LARGE))
        first = sessions.request(1, [11, 12, 13, 14], prompt=2048)
        name = sessions.pick(first)
        sessions.end(first)
        other = sessions.request(2, [11, 12, 93, 94], prompt=2048)
        assert sessions.credit(other) == {name: pytest.approx(1024)}

    def test_a_beginning_counts_only_without_a_gap(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(4, **LARGE))
        sessions.serve(1, blocks=[11, 12, 13], prompt=1536)
        assert not sessions.credit(sessions.request(2, [10, 12, 13], prompt=1536))

    def test_requests_of_no_session_find_what_is_cached_too(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(8, **LARGE))
        names = {sessions.serve(None, blocks=[*range(1, 17), 1000 + k], prompt=8192 + 512) for k in range(30)}
        assert len(names) == 1

    def test_a_beginning_of_one_model_says_nothing_of_another(self, lua: Any) -> None:
        sessions = Sessions(lua, backend("a", models={"m": "m", "n": "n"}, **LARGE))
        sessions.serve(1, blocks=[11, 12], prompt=1024)
        r = sessions.request(2, [11, 12], prompt=1024)
        assert sessions.credit(r)
        r.pool = sessions.view.fleet.models[b"n"]
        assert not sessions.credit(r)

    def test_what_is_evicted_counts_no_more(self, lua: Any) -> None:
        sessions = Sessions(lua, backend("a", capacity=16_000))
        sessions.serve(1, blocks=[11, 12], prompt=1024)
        for k in range(5):
            sessions.serve(100 + k, prompt=2900)
        assert sessions.credit(sessions.request(2, [11, 12], prompt=1024)) == {"a": pytest.approx(512)}
        sessions.serve(105, prompt=2900)
        assert not sessions.credit(sessions.request(2, [11, 12], prompt=1024))
