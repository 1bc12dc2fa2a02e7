"""Two gateways of one id."""

from __future__ import annotations

from sidecar.control.clashes import Clashes


def test_a_gateway_that_is_started_anew_shares_its_id_with_nobody():
    clashes = Clashes()
    for at, instance in enumerate(["host:1", "host:1", "host:2", "host:2", "host:3"]):
        clashes.observe("gw", instance, at)
    assert clashes.ids(5) == []


def test_two_that_overwrite_each_other_are_told_until_one_has_left_for_a_minute():
    clashes = Clashes()
    for at, instance in enumerate(["a:1", "b:1", "a:1"]):
        clashes.observe("gw", instance, at)
    clashes.observe("other", "c:1", 3)
    assert clashes.ids(4) == ["gw"]
    assert clashes.ids(60_001) == ["gw"]
    assert clashes.ids(60_002) == []


def test_many_restarts_are_not_all_remembered():
    clashes = Clashes()
    for at in range(1000):
        clashes.observe("gw", f"a:{at}", at)
    assert len(clashes._instances["gw"]) <= 16
