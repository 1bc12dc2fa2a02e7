"""The interleaving of the systems."""

from __future__ import annotations

from types import SimpleNamespace

from bench.overhead import measure


def test_every_round_has_every_system_once_and_the_order_changes():
    orders = list(measure.orders(["a", "b", "c", "d"], rounds=6, seed=1))
    assert all(sorted(order) == ["a", "b", "c", "d"] for order in orders)
    assert len({tuple(order) for order in orders}) > 1


def test_a_named_system_that_could_not_be_started_is_left_out():
    running = {"a": SimpleNamespace(port=1, pid=1), "b": SimpleNamespace(port=2, pid=2)}
    assert list(measure.taking_part(running, ("b", "c"))) == ["b"]
    assert list(measure.taking_part(running, ())) == ["a", "b"]
