"""A ramp spares what is new, but nobody waits beside a backend with room."""

from __future__ import annotations

from typing import Any

from tests.unit.lua.fleets import backend, equal, snapshot
from tests.unit.lua.views import View


def choose(view: View, name: str, draw: float) -> tuple[int | None, str]:
    """What the policy of that name chooses of what is eligible: (index or None, reason)."""
    health = view.require("tokenweir.core.backend.health").new(view.fleet.size)
    query = view.lua.table_from(
        {
            b"now": 1000,
            b"health": health,
            b"stale": False,
            b"draw": draw,
            b"settings": view.view.settings,
            b"tried": view.lua.table(),
            b"tried_count": 0,
        }
    )
    candidates = view.lua.table()
    eligible = view.require("tokenweir.core.backend.eligible")
    count, _, _, spare = eligible.filter(view.fleet, view.fleet.models[b"m"], query, candidates)
    answer = view.policy.among(
        view.policy.get(name.encode()), view.view, view.request(), candidates, count, spare
    )
    index, reason = answer if isinstance(answer, tuple) else (answer, None)
    return index, (reason or b"").decode()


def fleet(lua: Any) -> View:
    """Two old backends and one that has a twentieth of its share."""
    return View(lua, snapshot(*equal(2), backend("new", admit=0.05)))


def drawn_out(view: View) -> float:
    """A draw that leaves the new backend out."""
    step = 0.6180339887498949
    return next(k / 100 for k in range(100) if (k / 100 + view.fleet.place[3] * step) % 1 * 3 >= 0.05)


def test_where_the_others_have_room_one_that_was_not_drawn_gets_nothing(lua: Any) -> None:
    view = fleet(lua)
    assert choose(view, "predictive", drawn_out(view))[0] in {1, 2}


def test_where_the_others_are_full_it_serves_though_it_was_not_drawn(lua: Any) -> None:
    view = fleet(lua)
    for index in (1, 2):
        view.hold(index, prompt=14_300, mean=100)
    assert choose(view, "predictive", drawn_out(view)) == (3, "")


def test_where_it_is_full_too_the_request_waits(lua: Any) -> None:
    view = fleet(lua)
    for index in (1, 2, 3):
        view.hold(index, prompt=14_300, mean=100)
    assert choose(view, "predictive", drawn_out(view)) == (None, "full")


def test_where_all_are_full_and_none_was_left_out_the_request_waits(lua: Any) -> None:
    view = fleet(lua)
    for index in (1, 2, 3):
        view.hold(index, prompt=14_300, mean=100)
    step = 0.6180339887498949
    drawn_in = next(k / 1000 for k in range(1000) if (k / 1000 + view.fleet.place[3] * step) % 1 * 3 < 0.05)
    assert choose(view, "predictive", drawn_in) == (None, "full")
