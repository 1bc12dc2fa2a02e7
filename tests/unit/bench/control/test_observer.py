"""What the control bench reads from outside."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis.asyncio import Redis

from bench.control.fleet import MODEL
from bench.control.observer import Look, Observer


def look(at: float, level: int = 0, **states: str) -> Look:
    backends = [{"id": name, "state": state} for name, state in states.items()]
    control = {"level": level, "refuse_new": level >= 1, "drop_low": level >= 2}
    return Look(at, {"sequence": int(at), "fence": 1, "models": {MODEL: control}, "backends": backends})


@pytest.fixture
def observer() -> Observer:
    return Observer(Redis(), "g")


def test_a_switch_that_goes_on_again_is_a_flap(observer: Observer) -> None:
    observer.looks = [look(1), look(2, level=1), look(3), look(4, level=1), look(5)]
    assert observer.flaps() == 1
    observer.looks = [look(1), look(2, level=1), look(3, level=2), look(4, level=1), look(5)]
    assert observer.flaps() == 0


def test_a_backend_that_leaves_again_is_a_flap(observer: Observer) -> None:
    away = [look(1, a="ready"), look(2, a="down"), look(3, a="starting"), look(4, a="ready")]
    observer.looks = away
    assert observer.flaps() == 0
    observer.looks = [*away, look(5, a="down")]
    assert observer.flaps() == 1


def test_the_first_snapshot_that_shows_something_is_found(observer: Observer) -> None:
    observer.looks = [look(1), look(2, level=1), look(3, level=1)]
    assert observer.first(lambda one: bool(one.model["refuse_new"]), 0) == 2
    assert observer.first(lambda one: bool(one.model["refuse_new"]), 2.5) == 3
    assert observer.first(lambda one: bool(one.model["drop_low"]), 0) is None


def test_a_snapshot_is_taken_once_and_the_lease_as_it_is(observer: Observer) -> None:
    text = json.dumps(look(1).snapshot)
    observer._take_snapshot(text)
    observer._take_snapshot(text)
    assert len(observer.looks) == 1
    lease: dict[str, Any] = {"queue": {MODEL: {"depth": 3, "oldest_ms": 2500}}, "ejected": {"a": "hang"}}
    observer._take_lease(json.dumps(lease))
    assert (observer.oldest_wait_s, observer.depth, set(observer.ejected)) == (2.5, 3, {"a"})
    observer._take_lease(json.dumps({"queue": [], "ejected": []}))
    assert observer.oldest_wait_s == 0
