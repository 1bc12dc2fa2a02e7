"""When a promoted spare that is not there is started, and started again."""

from __future__ import annotations

from sidecar.control.spare_starts import SpareStarts
from tokenweir.config.control import RestartConfig

CONFIG = RestartConfig()


def test_it_is_started_at_once_and_once():
    starts = SpareStarts()
    assert starts.due("s", CONFIG, 0)
    assert not starts.due("s", CONFIG, 500)
    assert starts.problem("s") is None
    starts.carried_out("s", True, "started", 1000)
    assert not starts.due("s", CONFIG, 100_000)


def test_a_start_that_fails_is_ordered_again_after_growing_pauses():
    starts = SpareStarts()
    now, ordered = 0.0, []
    while len(ordered) < 4:
        if starts.due("s", CONFIG, now):
            ordered.append(now)
            starts.carried_out("s", False, "no such container", now)
        now += 500
    assert [at / 1000 for at in ordered] == [0, 10, 30, 70]
    assert starts.problem("s") == "no such container"


def test_one_that_does_not_come_up_is_started_again_and_not_counted_on():
    starts = SpareStarts()
    starts.due("s", CONFIG, 0)
    starts.carried_out("s", True, "started", 1000)
    assert not starts.due("s", CONFIG, 900_000)
    assert starts.due("s", CONFIG, 901_000)
    assert "does not serve 900 s after" in str(starts.problem("s"))
    starts.carried_out("s", True, "started", 902_000)
    assert starts.problem("s") == "it is started again; 1 of its starts failed"


def test_one_that_serves_is_forgotten():
    starts = SpareStarts()
    starts.due("s", CONFIG, 0)
    starts.carried_out("s", False, "no", 0)
    starts.forget("s")
    assert starts.problem("s") is None
    assert starts.due("s", CONFIG, 500)
