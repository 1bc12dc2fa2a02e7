"""`lua/tokenweir/core/policy/stay.lua`: whether a session stays where it lives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.lua.fleets import backend, equal, to_lua
from tests.unit.lua.sessions.sessions import MINUTE, Sessions

LARGE = {"capacity": 100_000}
LONG = {"prompt": 20_000, "mean": 50.0, "sd": 20.0}


@pytest.fixture
def sessions(lua: Any) -> Sessions:
    """Eight equal backends, one of which has served session 1 a long prompt."""
    made = Sessions(lua, *equal(8, **LARGE))
    made.serve(1, **LONG)
    return made


def busy(sessions: Sessions, name: str, count: int) -> None:
    """So many ordinary requests in flight there."""
    for _ in range(count):
        sessions.view.hold(sessions.names.index(name) + 1)


def test_it_stays_where_others_are_a_little_cheaper(sessions: Sessions) -> None:
    home = sessions.home(1)
    busy(sessions, home, 3)
    assert sessions.serve(1, **LONG) == home
    assert sessions.verdict == "home"


def test_it_moves_where_the_wait_exceeds_what_is_to_be_computed_anew(lua: Any) -> None:
    sessions = Sessions(lua, *equal(8, **LARGE))
    home = sessions.serve(1, prompt=1000)
    busy(sessions, home or "", 60)
    assert sessions.serve(1, prompt=1000) != home
    assert sessions.verdict == "cost"
    assert sessions.told == "move"


def test_a_long_prompt_in_the_cache_keeps_it_where_the_wait_is_long(sessions: Sessions) -> None:
    home = sessions.home(1)
    busy(sessions, home, 60)
    assert sessions.serve(1, **LONG) == home


def test_what_it_has_in_the_cache_is_what_stickiness_is_worth(lua: Any) -> None:
    with_cache, without = Sessions(lua, *equal(8, **LARGE)), Sessions(lua, *equal(8, **LARGE))
    with_cache.serve(1, **LONG)
    for each in (with_cache, without):
        busy(each, each.home(1), 12)
    assert with_cache.serve(1, **LONG) == with_cache.home(1)
    assert without.serve(1, **LONG) != without.home(1)


def test_over_85_percent_of_its_memory_it_moves_to_the_next_choice_on_the_ring(lua: Any) -> None:
    one, other = Sessions(lua, *equal(8, **LARGE)), Sessions(lua, *equal(8, **LARGE), seed=9)
    moved = []
    for sessions in (one, other):
        sessions.serve(1, prompt=2000)
        sessions.fill(sessions.home(1), 0.86)
        moved.append(sessions.serve(1, prompt=200, mean=20.0, sd=5.0))
        assert sessions.verdict in {"load", "room"}
    assert moved[0] == moved[1] != one.home(1)


def test_what_the_engine_says_of_its_memory_counts_too(lua: Any) -> None:
    backends = equal(4, **LARGE)
    sessions = Sessions(lua, *backends)
    home = sessions.home(1)
    sessions.fleet(*[b | ({"memory": 0.9} if b["id"] == home else {}) for b in backends])
    assert sessions.serve(1) != home
    assert sessions.verdict == "load"


def test_loaded_choices_on_the_ring_are_passed_over(lua: Any) -> None:
    sessions = Sessions(lua, *equal(4, **LARGE))
    full = sessions.home(1)
    seen = []
    for _ in range(3):
        sessions.fill(full, 0.86)
        full = sessions.serve(1, prompt=100, mean=20.0, sd=5.0) or ""
        seen.append(full)
    assert len({sessions.home(1), *seen}) == 4


def test_where_all_are_loaded_alike_it_stays(lua: Any) -> None:
    sessions = Sessions(lua, *equal(4, memory=0.9, **LARGE))
    assert {sessions.serve(1) for _ in range(5)} == {sessions.home(1)}


def test_where_nothing_has_room_it_waits(lua: Any) -> None:
    sessions = Sessions(lua, *equal(3, **LARGE))
    for name in sessions.names:
        sessions.fill(name, 0.9)
    assert sessions.serve(1, **LONG) is None


class TestReturn:
    """A session that had to leave a full backend."""

    @pytest.fixture
    def away(self, lua: Any) -> Sessions:
        sessions = Sessions(lua, *equal(4, **LARGE))
        held = sessions.fill(sessions.home(1), 0.9)
        sessions.watch()
        self.there = sessions.serve(1, prompt=2000)
        assert self.there != sessions.home(1)
        sessions.release(sessions.home(1), held)
        return sessions

    def test_it_stays_away_for_a_minute_at_least(self, away: Sessions) -> None:
        away.now += 0.9 * MINUTE
        assert away.serve(1, prompt=400) == self.there

    def test_it_stays_where_its_cache_is_now(self, away: Sessions) -> None:
        away.now += 2 * MINUTE
        assert away.serve(1, prompt=2500) == self.there
        assert away.verdict == "stay"

    def test_it_returns_where_waiting_costs_more_than_the_prefill(self, away: Sessions) -> None:
        away.now += 2 * MINUTE
        busy(away, self.there or "", 40)
        assert away.serve(1, prompt=2500) == away.home(1)
        assert (away.verdict, away.told) == ("back", "return")

    def test_a_home_that_is_loaded_again_keeps_it_away(self, away: Sessions) -> None:
        away.now += 2 * MINUTE
        held = away.fill(away.home(1), 0.75)
        away.watch()
        away.release(away.home(1), held)
        busy(away, self.there or "", 1)
        assert away.serve(1, prompt=2500) == self.there


def test_a_backend_with_no_known_capacity_is_loaded_by_its_requests(lua: Any) -> None:
    backends = [backend(f"b{k}", capacity=None, concurrency=10) for k in range(4)]
    sessions = Sessions(lua, *backends)
    home = sessions.home(1)
    busy(sessions, home, 9)
    assert sessions.serve(1, prompt=10) != home


def test_on_a_stale_snapshot_sessions_stay_too(sessions: Sessions) -> None:
    sessions.view.view.stale = True
    r = sessions.request(1, **LONG)
    assert sessions.pick(r, policy="predictive") == sessions.home(1)


def test_a_hot_set_of_sessions_does_not_overload_its_backend(lua: Any) -> None:
    sessions = Sessions(lua, *equal(8, **LARGE))
    hot = [k for k in range(2000) if sessions.home(k) == "b1"][:80]
    shares: dict[str, int] = dict.fromkeys(sessions.names, 0)
    for k in hot:
        r = sessions.request(k)
        name = sessions.pick(r)
        assert name is not None
        sessions.view.hold(sessions.names.index(name) + 1)
        shares[name] += 1
    assert max(shares.values()) <= 1.6 * len(hot) / 8


class TestTransfer:
    """A session whose cache can be moved, from a backend that is busy but not loaded."""

    @pytest.fixture
    def busy_home(self, lua: Any) -> Sessions:
        sessions = Sessions(lua, *equal(8, kv_bytes=131072, **LARGE))
        home = sessions.serve(1, **LONG)
        busy(sessions, home or "", 60)
        return sessions

    def configure(self, sessions: Sessions, lua: Any, **changes: Any) -> None:
        how = {"adapter": "agent", "bandwidth": 10 * 1024**3, "latency_ms": 20, "limit_ms": 5000}
        sessions.view.view.transfer = to_lua(lua, how | changes)
        same = dict.fromkeys(range(1, len(sessions.names) + 1), b"m")
        sessions.view.fleet.models[b"m"].upstream_of = lua.table_from(same)

    def known(self, sessions: Sessions, *names: str, ratio: float = 1, failures: int = 0) -> None:
        """What transfers to these backends (none: to all) took lately, against what is configured."""
        for name in names or sessions.names:
            place = sessions.view.fleet.place[sessions.names.index(name) + 1]
            write = sessions.lua.eval(b"function(backend, name, value) backend[name] = value end")
            for what, value in (("ratio", ratio), ("at", sessions.now), ("failures", failures)):
                write(sessions.memory.backend[place], f"transfer_{what}".encode(), value)

    def test_it_moves_where_its_cache_comes_along_for_less_than_waiting_costs(
        self, busy_home: Sessions, lua: Any
    ) -> None:
        self.configure(busy_home, lua)
        self.known(busy_home)
        r = busy_home.request(1, **LONG)
        assert busy_home.pick(r) != busy_home.home(1)
        assert busy_home.verdict == "cost"
        assert r.moved_from == busy_home.view.fleet.place[busy_home.names.index(busy_home.home(1)) + 1]

    def test_only_to_a_backend_to_which_a_transfer_was_done_already(
        self, busy_home: Sessions, lua: Any
    ) -> None:
        self.configure(busy_home, lua)
        assert busy_home.serve(1, **LONG) == busy_home.home(1)
        other = next(name for name in busy_home.names if name != busy_home.home(1))
        self.known(busy_home, other)
        assert busy_home.serve(1, **LONG) == other

    @pytest.mark.parametrize("spoilt", ["failed", "slow", "not configured", "another model", "loaded"])
    def test_where_no_transfer_helps_it_stays(self, busy_home: Sessions, lua: Any, spoilt: str) -> None:
        if spoilt != "not configured":
            self.configure(busy_home, lua)
        self.known(busy_home, ratio=40 if spoilt == "slow" else 1, failures=1 if spoilt == "failed" else 0)
        for name in busy_home.names:
            if name == busy_home.home(1):
                continue
            if spoilt == "another model":
                busy_home.view.set("kv_bytes", busy_home.names.index(name) + 1, 65536)
            elif spoilt == "loaded":
                busy(busy_home, name, 60)
        assert busy_home.serve(1, **LONG) == busy_home.home(1)

    def test_an_idle_home_keeps_it_however_cheap_a_transfer_is(self, sessions: Sessions, lua: Any) -> None:
        self.configure(sessions, lua, bandwidth=1e15, latency_ms=0)
        self.known(sessions)
        assert sessions.serve(1, **LONG) == sessions.home(1)

    def test_a_new_session_has_no_cache_to_bring_along(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(8, kv_bytes=131072, **LARGE))
        without = sessions.pick(sessions.request(7, **LONG))
        other = Sessions(lua, *equal(8, kv_bytes=131072, **LARGE))
        self.configure(other, lua)
        self.known(other)
        assert other.pick(other.request(7, **LONG)) == without
