"""`lua/tokenweir/core/backend/eligible.lua`."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from tests.unit.lua.fleets import backend, equal, snapshot
from tests.unit.lua.views import View

NOW = 1_000_000.0


class Filter:
    """A fleet with the health of its backends."""

    def __init__(self, lua: Any, *backends: dict[str, Any]) -> None:
        self.view = View(lua, snapshot(*backends))
        self.health = self.view.require("tokenweir.core.backend.health")
        self.rows = self.health.new(self.view.fleet.size)
        self.eligible = self.view.require("tokenweir.core.backend.eligible")
        self.random = random.Random(3).random

    def fail(self, index: int, cause: str = "connect", now: float = NOW) -> None:
        """Ejects a backend."""
        for _ in range(3):
            self.health.failure(self.row(index), now, self.health.CAUSES[cause.encode()])

    def row(self, index: int) -> Any:
        """The health of a backend."""
        return self.rows[self.view.fleet.place[index]]

    def __call__(self, now: float = NOW, **query: Any) -> tuple[list[int], str, float | None]:
        """What is left of the pool of `m`: (indices, word, time)."""
        lua = self.view.lua
        tried = query.pop("tried", [])
        table = lua.table_from(
            {
                b"now": now,
                b"health": self.rows,
                b"stale": False,
                b"random": self.random,
                b"settings": self.view.view.settings,
                b"tried": lua.table_from([self.view.fleet.place[i] for i in tried]),
                b"tried_count": len(tried),
            }
            | {k.encode(): v.encode() if isinstance(v, str) else v for k, v in query.items()}
        )
        out = lua.table()
        answer = self.eligible.filter(self.view.fleet, self.view.fleet.models[b"m"], table, out)
        count, word, at = (*answer, None, None)[:3] if isinstance(answer, tuple) else (answer, None, None)
        return [out[k] for k in range(1, count + 1)], (word or b"").decode(), at


def test_only_ready_backends_of_the_asked_role_serve(lua: Any) -> None:
    chosen = Filter(
        lua,
        backend("a"),
        backend("b", state="draining"),
        backend("c", state="starting"),
        backend("d", state="down"),
        backend("e", role="standby"),
        backend("f", role="fallback"),
        backend("g", models={"other": "other"}),
    )
    assert chosen()[0] == [1]
    assert chosen(role="fallback")[0] == [6]


def test_the_next_role_serves_only_where_none_before_it_can(lua: Any) -> None:
    chosen = Filter(
        lua,
        backend("a"),
        backend("b"),
        backend("c", role="standby", context=1000),
        backend("d", role="fallback"),
    )
    assert chosen()[0] == [1, 2]
    assert chosen(tried=[1, 2])[0] == [3]
    chosen.fail(1, "status")
    chosen.fail(2)
    assert chosen()[0] == [3], "a healthy spare before an active one that answers with errors"
    assert chosen(prompt=2000)[0] == [4]
    chosen.fail(3)
    assert chosen()[0] == [4]
    chosen.fail(4)
    assert chosen()[:2] == ([1], "panic")


def test_on_a_stale_snapshot_what_was_out_may_be_tried_again_but_not_what_drains(lua: Any) -> None:
    chosen = Filter(
        lua, backend("a", state="down"), backend("b", state="starting"), backend("c", state="draining")
    )
    assert chosen(stale=False)[:2] == ([], "down")
    assert chosen(stale=True)[0] == [1, 2]
    for index in (1, 2):
        chosen.health.doubt(chosen.row(index), NOW - 5000, NOW)
        chosen.health.probe(chosen.row(index), NOW)
    assert chosen(stale=True)[:2] == ([], "ejected"), "one probe at a time"


def test_who_is_down_only_for_being_late_is_tried_where_nobody_else_is_left(lua: Any) -> None:
    late = {"state": "down", "late": True, "scrape_failures": 2}
    chosen = Filter(lua, backend("a"), backend("b", **late), backend("c", state="down"))
    assert chosen()[:2] == ([1], "")
    assert chosen(tried=[1])[:2] == ([2], "late")
    chosen.fail(1)
    assert chosen()[:2] == ([2], "late")
    chosen.health.doubt(chosen.row(2), NOW - 3000, NOW)
    chosen.health.probe(chosen.row(2), NOW)
    assert chosen()[:2] == ([], "ejected"), "one probe at a time"
    chosen.health.byte(chosen.row(2), NOW + 10)
    assert chosen(NOW + 20)[:2] == ([2], "late"), "it lives"
    chosen.health.hang(chosen.row(2), NOW + 30)
    assert chosen(NOW + 60_000, tried=[1])[:2] == ([], "ejected"), "it stands still"


def test_nothing_ready_is_told_as_down(lua: Any) -> None:
    assert Filter(lua, backend("a", state="down"))()[:2] == ([], "down")


def test_an_ejected_backend_is_left_out_and_the_time_of_its_probe_told(lua: Any) -> None:
    chosen = Filter(lua, *equal(2))
    chosen.fail(1)
    assert chosen()[0] == [2]
    chosen.fail(2)
    assert chosen() == ([], "ejected", NOW + 5000)


def test_a_half_open_backend_takes_part_until_its_probe_is_out(lua: Any) -> None:
    chosen = Filter(lua, *equal(2))
    chosen.fail(1)
    assert chosen(NOW + 5000)[0] == [1, 2]
    chosen.health.probe(chosen.row(1), NOW + 5000)
    assert chosen(NOW + 5000)[0] == [2]
    assert chosen(NOW + 35_000)[0] == [1, 2]


def test_a_frozen_backend_stays_out_while_it_cannot_be_scraped(lua: Any) -> None:
    chosen = Filter(lua, *equal(2))
    chosen.health.hang(chosen.row(1), NOW)
    chosen.view.set("scrape_failures", 1, 2)
    assert chosen(NOW + 6000)[0] == [2]
    assert chosen(NOW + 6000, stale=True)[0] == [1, 2], "without telemetry time has to do"
    chosen.view.set("scrape_failures", 1, 0)
    assert chosen(NOW + 6000)[0] == [1, 2]


def test_when_all_answer_with_errors_all_are_tried_rather_than_none(lua: Any) -> None:
    chosen = Filter(lua, *equal(3))
    chosen.fail(1, "status")
    chosen.fail(2, "status")
    assert chosen()[:2] == ([3], "")
    chosen.fail(3, "connect")
    assert chosen()[:2] == ([1, 2], "panic")


def test_a_frozen_backend_is_not_tried_even_then(lua: Any) -> None:
    chosen = Filter(lua, *equal(1))
    chosen.health.hang(chosen.row(1), NOW)
    assert chosen()[:2] == ([], "ejected")


def test_tried_backends_are_excluded(lua: Any) -> None:
    chosen = Filter(lua, *equal(3))
    assert chosen(tried=[1, 3])[0] == [2]
    assert chosen(tried=[1, 2, 3])[:2] == ([], "tried")


def test_a_retry_stays_with_the_same_credentials_and_upstream_model(lua: Any) -> None:
    chosen = Filter(
        lua,
        backend("a", credential_group="x"),
        backend("b", credential_group="y"),
        backend("c", credential_group="x", models={"m": "another-name"}),
        backend("d", credential_group="x"),
    )
    assert chosen(tried=[1], credential_group="x", upstream="upstream-m")[0] == [4]


def test_a_prompt_longer_than_a_context_goes_where_it_fits(lua: Any) -> None:
    chosen = Filter(lua, backend("a", context=4096), backend("b", context=32768), backend("c"))
    assert chosen(prompt=5000)[0] == [2, 3]
    assert chosen(prompt=50_000)[0] == [3]


def test_a_prompt_that_seems_longer_than_every_context_is_left_to_the_caller(lua: Any) -> None:
    chosen = Filter(lua, backend("a", context=4096), backend("b", context=8192))
    assert chosen(prompt=9000)[:2] == ([1, 2], "context")


def test_the_share_of_failures_is_told_to_the_cost(lua: Any) -> None:
    chosen = Filter(lua, *equal(1))
    chosen.health.failure(chosen.row(1), NOW, 1)
    chosen()
    assert chosen.view.fleet.error_rate[1] > 0.1


def test_a_ramping_backend_gets_its_share_of_a_fair_share(lua: Any) -> None:
    chosen = Filter(lua, *equal(7), backend("new", admit=0.4))
    drawn = sum(8 in chosen()[0] for _ in range(8000))
    assert 300 < drawn < 500, "0.4 of one in eight"


def test_where_each_has_its_turn_a_ramping_backend_has_it_so_often(lua: Any) -> None:
    chosen = Filter(lua, *equal(7), backend("new", admit=0.4))
    drawn = sum(8 in chosen(by_turn=True)[0] for _ in range(2000))
    assert 700 < drawn < 900


def test_a_fleet_that_is_all_new_serves_all_the_same(lua: Any) -> None:
    chosen = Filter(lua, *equal(4, admit=0.01))
    counts = Counter(len(chosen()[0]) for _ in range(200))
    assert 0 not in counts
    assert counts[4] > 150


def test_a_backend_that_is_held_for_another_is_left_out(lua: Any) -> None:
    chosen = Filter(lua, backend("a"), backend("b"))
    place = chosen.view.fleet.place
    assert chosen(apart=place[1])[0] == [2]
    alone = Filter(lua, backend("a"))
    assert alone(apart=alone.view.fleet.place[1])[:2] == ([], "full")
