"""`lua/tokenweir/core/sessions/affinity.lua`: where sessions live, and what the backends' caches hold."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.unit.lua.fleets import backend, equal
from tests.unit.lua.sessions.sessions import LIFE, MINUTE, Sessions

LARGE = {"capacity": 100_000}


def test_a_session_is_served_at_its_place_on_the_ring_again_and_again(lua: Any) -> None:
    sessions = Sessions(lua, *equal(8, **LARGE))
    served = {k: {sessions.serve(k) for _ in range(5)} for k in range(100)}
    assert all(len(names) == 1 for names in served.values())
    assert sum(names == {sessions.home(k)} for k, names in served.items()) > 50


def test_new_sessions_pass_over_backends_that_were_given_more_than_their_share_of_work(lua: Any) -> None:
    sessions = Sessions(lua, *equal(8, **LARGE))
    hot = [k for k in range(4000) if sessions.home(k) == "b1"][:200]
    shares = Counter(sessions.serve(k) for k in hot)
    assert len(shares) == 8
    assert max(shares.values()) <= 1.3 * len(hot) / 8
    assert all(sessions.serve(k) == name for k in hot[:20] for name in [sessions.serve(k)])


def test_what_another_gateway_has_served_is_not_new(lua: Any) -> None:
    sessions = Sessions(lua, *equal(8, **LARGE))
    for k in [k for k in range(4000) if sessions.home(k) == "b1"][:100]:
        sessions.serve(k)
        r = sessions.request(10_000 + k)
        sessions.core.locate(
            sessions.memory, sessions.rings, sessions.view.fleet, r, sessions.now, LIFE, True
        )
        assert r.settled
        assert r.stay == r.home


def test_a_new_session_goes_where_most_of_its_prompt_is_cached(lua: Any) -> None:
    sessions = Sessions(lua, *equal(8, **LARGE))
    first = sessions.serve(1, blocks=[11, 12, 13, 14], prompt=2100)
    for k in range(20, 27):
        sessions.serve(k, prompt=2100)
    assert sessions.serve(2, blocks=[11, 12, 13, 94], prompt=2100) == first


def test_two_gateways_that_never_spoke_choose_the_same_place(lua: Any) -> None:
    one, other = (Sessions(lua, *equal(8, **LARGE), seed=seed) for seed in (1, 2))
    assert [one.serve(k) for k in range(50)] == [other.serve(k) for k in range(50)]


def test_removing_a_backend_moves_its_own_sessions_only(lua: Any) -> None:
    backends = equal(8, **LARGE)
    sessions = Sessions(lua, *backends)
    before = {k: sessions.home(k) for k in range(400)}
    sessions.fleet(*backends[1:])
    after = {k: sessions.home(k) for k in before}
    assert {before[k] for k in before if before[k] != after[k]} == {"b1"}
    assert {after[k] for k in before if before[k] == "b1"} == {f"b{n}" for n in range(2, 9)}


def test_the_order_of_the_backends_in_a_snapshot_does_not_matter(lua: Any) -> None:
    backends = equal(8, **LARGE)
    sessions = Sessions(lua, *backends)
    before = [sessions.home(k) for k in range(100)]
    sessions.fleet(*reversed(backends))
    assert [sessions.home(k) for k in range(100)] == before


def test_a_backend_that_cannot_serve_loses_its_sessions_to_their_next_choices(lua: Any) -> None:
    sessions = Sessions(lua, *equal(8, **LARGE))
    at_b1 = [k for k in range(300) if sessions.home(k) == "b1"]
    heirs = Counter(sessions.serve(k, *range(2, 9)) for k in at_b1)
    assert set(heirs) == {f"b{n}" for n in range(2, 9)}
    assert sessions.told == "move"


def test_shares_follow_what_backends_can_hold_and_their_weight(lua: Any) -> None:
    sessions = Sessions(
        lua,
        backend("a", capacity=20_000),
        backend("b", capacity=60_000),
        backend("c", capacity=20_000, weight=2),
    )
    shares = Counter(sessions.home(k) for k in range(6000))
    assert [shares[name] / 1000 for name in "abc"] == pytest.approx([1, 3, 2], rel=0.3)


def test_a_backend_that_ramps_gets_its_share_of_new_sessions_and_none_of_the_old(lua: Any) -> None:
    backends = equal(4, **LARGE)
    sessions = Sessions(lua, *backends)
    old = {k: sessions.serve(k) for k in range(300)}
    ramping = backend("b5", admit=0.2, **LARGE)
    sessions.fleet(*backends, ramping)
    assert all(sessions.serve(k) == name for k, name in old.items())
    new = Counter(sessions.serve(k) for k in range(1000, 3000))
    assert new["b5"] / 2000 == pytest.approx(0.2 / 5, rel=0.3)
    born_there = [k for k in range(1000, 3000) if sessions.serve(k) == "b5"]
    assert len(born_there) == new["b5"]
    sessions.fleet(*backends, backend("b5", **LARGE))
    assert all(sessions.serve(k) == "b5" for k in born_there)


@pytest.mark.parametrize("admit", [0.05, 0.5, 0.9])
def test_of_a_small_fleet_too_a_backend_that_ramps_gets_no_more_than_that_of_its_fair_share(
    lua: Any, admit: float
) -> None:
    sessions = Sessions(lua, backend("a", **LARGE), backend("b", admit=admit, **LARGE))
    count = 4000
    got = Counter(sessions.serve(k) for k in range(count))["b"]
    assert got / count == pytest.approx(admit / 2, abs=0.02)


def test_a_backend_that_holds_more_ramps_to_its_own_fair_share(lua: Any) -> None:
    sessions = Sessions(
        lua,
        backend("a", capacity=500_000),
        backend("b", capacity=1_500_000, admit=0.2),
        backend("c", **LARGE),
    )
    fair = 1_500_000 / (2_000_000 + LARGE["capacity"])
    got = Counter(sessions.serve(k) for k in range(4000))["b"]
    assert got / 4000 == pytest.approx(0.2 * fair, abs=0.02)


class TestMoves:
    """Sessions that live away from their places."""

    @staticmethod
    def learn(sessions: Sessions, session: int, name: str | None, age: float = 0.0, tokens: int = 0) -> None:
        r = sessions.request(session)
        sessions.core.locate(sessions.memory, sessions.rings, sessions.view.fleet, r, sessions.now, LIFE)
        key = sessions.lua.eval(b"require('bit').bxor")(r.session, r.pool.places.seed)
        place = sessions.view.fleet.place[sessions.names.index(name) + 1] if name else None
        sessions.core.learn(sessions.memory, key, r.session_set, place, tokens, sessions.now, age, LIFE)

    @staticmethod
    def elsewhere(sessions: Sessions, session: int) -> str:
        return next(name for name in sessions.names if name != sessions.home(session))

    def test_a_move_of_another_gateway_is_followed_and_expires(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(4, **LARGE))
        home, there = sessions.home(1), self.elsewhere(sessions, 1)
        sessions.now += LIFE
        self.learn(sessions, 1, there, tokens=3000)
        assert sessions.credit(sessions.request(1, prompt=4000)) == {there: 3000}
        sessions.heat(home)
        assert sessions.serve(1) == there
        assert sessions.verdict == "stay"
        self.learn(sessions, 2, self.elsewhere(sessions, 2))
        sessions.now += LIFE + MINUTE
        assert sessions.serve(2) == sessions.home(2)

    def test_a_move_told_too_long_ago_is_no_move(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(4, **LARGE))
        self.learn(sessions, 1, self.elsewhere(sessions, 1), age=LIFE + 1)
        assert sessions.serve(1) == sessions.home(1)

    def test_a_return_is_heard_too(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(4, **LARGE))
        self.learn(sessions, 1, self.elsewhere(sessions, 1))
        self.learn(sessions, 1, None)
        assert sessions.serve(1) == sessions.home(1)

    def test_a_move_is_told_once_and_again_before_it_expires(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(4, **LARGE))
        others = [k for k, name in enumerate(sessions.names, 1) if name != sessions.home(1)]
        told = []
        for _ in range(10):
            sessions.serve(1, *others)
            told.append(sessions.told)
            sessions.now += LIFE / 8
        assert told[:2] == ["move", ""]
        assert 2 <= told.count("move") <= 5

    def test_the_same_name_at_two_models_is_two_sessions(self, lua: Any) -> None:
        sessions = Sessions(lua, *[backend(f"b{k}", models={"m": "m", "n": "n"}, **LARGE) for k in range(8)])
        homes = []
        for model in (b"m", b"n"):
            found = []
            for session in range(40):
                r = sessions.request(session)
                r.pool = sessions.view.fleet.models[model]
                sessions.core.locate(
                    sessions.memory, sessions.rings, sessions.view.fleet, r, sessions.now, LIFE
                )
                found.append(r.home)
            homes.append(found)
        assert homes[0] != homes[1]


def test_a_large_ring_is_built_in_slices_while_the_one_before_serves(lua: Any) -> None:
    backends = equal(300, **LARGE)
    sessions = Sessions(lua, *backends)
    rings = sessions.view.require("tokenweir.core.sessions.rings")
    r = sessions.request(1)
    sessions.core.locate(sessions.memory, sessions.rings, sessions.view.fleet, r, sessions.now, LIFE)
    assert r.home is False
    assert sessions.pick(r) is not None
    turns = 1
    while not rings.step(sessions.rings, 20_000):
        turns += 1
    assert turns >= 5
    home = sessions.home(1)
    sessions.fleet(*backends, backend("b301", **LARGE))
    assert sessions.home(1) == home
    while not rings.step(sessions.rings, 20_000):
        assert sessions.home(1) == home
    sessions.fleet(*backends, backend("b301", **LARGE))
    moved = [k for k in range(3000) if sessions.home(k) == "b301"]
    assert moved


class TestMoved:
    """What a move tells of where the session was."""

    def test_the_first_request_elsewhere_tells_the_place_before_and_what_is_cached_there(
        self, lua: Any
    ) -> None:
        sessions = Sessions(lua, *equal(4, **LARGE))
        before = sessions.serve(1, prompt=4000)
        assert before
        others = [k for k, name in enumerate(sessions.names, 1) if name != before]
        r = sessions.request(1, prompt=5000)
        sessions.pick(r, *others)
        assert r.moved_from == sessions.view.fleet.place[sessions.names.index(before) + 1]
        assert r.moved_tokens == 4100
        sessions.end(r)
        again = sessions.request(1, prompt=6000)
        sessions.pick(again)
        assert again.moved_from is None

    def test_a_session_that_stays_tells_none_nor_one_that_is_new(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(4, **LARGE))
        for _ in range(2):
            r = sessions.request(1, prompt=4000)
            sessions.pick(r)
            assert r.moved_from is None
            sessions.end(r)

    def test_what_was_brought_to_a_backend_takes_room_in_its_cache(self, lua: Any) -> None:
        sessions = Sessions(lua, *equal(2, **LARGE))
        filled = []
        for brought in (None, 3000):
            r = sessions.request(None, prompt=4000)
            sessions.pick(r, 1)
            before = sessions.memory.backend[0].filled
            r.brought = brought
            sessions.end(r, output=0, cached=3000)
            filled.append(sessions.memory.backend[0].filled - before)
        assert filled == [1000, 4000]
