"""Whether and when an engine is restarted."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from sidecar.control.failures import Cause, Failure
from sidecar.control.restart import Restarts, Stage
from tokenweir.config.control import RestartConfig

CONFIG = RestartConfig()
OOM = Failure(Cause.OUT_OF_MEMORY, "out of memory")
CRASH = Failure(Cause.CRASH, "refuses")
OPERATOR = Failure(Cause.OPERATOR, "an operator asked for it")


def due(restarts, now, config=CONFIG):
    orders, spent = restarts.due(config, now)
    return [order.backend for order in orders], spent


def cycle(restarts, backend, now, took=30_000):
    """One restart that works; returns when the engine serves."""
    restarts.carried_out(backend, True, "done", now + 1000)
    restarts.serves(backend, now + took)
    return now + took


def test_the_first_restart_is_at_once():
    restarts = Restarts()
    assert restarts.want("a", "g", OOM, 0)
    assert restarts.holds_out("a")
    assert due(restarts, 0) == (["a"], [])
    assert due(restarts, 500) == ([], [])


def test_asking_twice_is_asking_once():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    assert not restarts.want("a", "g", CRASH, 100)


def test_of_a_group_one_that_serves_is_restarted_at_a_time():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    restarts.want("b", "g", OOM, 1)
    restarts.want("c", "other", OOM, 2)
    assert due(restarts, 10) == (["a", "c"], [])
    assert "another of the group g" in restarts.reason("b")
    restarts.carried_out("a", True, "done", 1000)
    assert due(restarts, 2000) == ([], [])
    restarts.serves("a", 30_000)
    assert due(restarts, 30_500) == (["b"], [])


def test_what_is_down_does_not_wait_for_a_restart_that_brings_nothing_back():
    restarts = Restarts()
    restarts.want("a", "g", CRASH, 0)
    restarts.want("b", "g", CRASH, 1)
    restarts.want("c", "g", OPERATOR, 2)
    orders, _ = restarts.due(CONFIG, 10, lambda name: name == "c")
    assert [order.backend for order in orders] == ["a", "b"]
    assert "another of the group g" in restarts.reason("c")
    orders, _ = restarts.due(CONFIG, 20, lambda name: False)
    assert [order.backend for order in orders] == ["c"]


def test_a_restart_without_an_end_is_told_after_a_third_of_its_time():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    due(restarts, 0)
    restarts.carried_out("a", True, "done", 1000)
    restarts.want("b", "g", OPERATOR, 2000)
    due(restarts, 2000)
    assert restarts.long(CONFIG, 300_000) == {}
    assert restarts.long(CONFIG, 302_000) == {
        "a": "restart awaited for 301 s: out of memory; it is restarted again after 900 s",
        "b": "restart wanted for 300 s: an operator asked for it; another of the group g is being restarted",
    }
    restarts.serves("a", 303_000)
    assert "a" not in restarts.long(CONFIG, 800_000)


def test_what_an_operator_wants_restarted_serves_until_its_turn():
    restarts = Restarts()
    restarts.want("a", "g", OPERATOR, 0)
    restarts.want("b", "g", OPERATOR, 1)
    assert not restarts.holds_out("a")
    assert due(restarts, 10) == (["a"], [])
    assert (restarts.holds_out("a"), restarts.holds_out("b")) == (True, False)
    assert restarts.want("b", "g", OOM, 20)
    assert restarts.holds_out("b"), "it is no longer well"


def test_the_pauses_between_restarts_grow():
    restarts, config = Restarts(), RestartConfig(most_per_hour=10)
    begun = []
    now = 0.0
    for _ in range(4):
        restarts.want("a", "g", OOM, now)
        while not due(restarts, now, config)[0]:
            now += 500
        begun.append(now)
        now = cycle(restarts, "a", now, 1000)
    assert [after - before for before, after in pairwise(begun)] == [10_000, 20_000, 40_000]


def test_the_restarts_of_an_hour_are_counted_and_then_it_stays_out():
    restarts = Restarts()
    now = 0.0
    for _ in range(3):
        restarts.want("a", "g", OOM, now)
        assert due(restarts, now)[0] == ["a"]
        now = cycle(restarts, "a", now) + 300_000
    restarts.want("a", "g", OOM, now)
    assert due(restarts, now) == ([], ["a"])
    assert restarts.stage("a") is Stage.SPENT
    assert "3 restarts within the last hour" in restarts.reason("a")
    assert due(restarts, now + 4e6) == ([], [])
    assert restarts.holds_out("a")


def test_an_hour_later_there_are_restarts_again():
    restarts = Restarts()
    for at in (0.0, 1e5, 2e5):
        restarts.want("a", "g", OOM, at)
        due(restarts, at)
        cycle(restarts, "a", at)
    restarts.want("a", "g", OOM, 3_800_000)
    assert due(restarts, 3_800_000) == (["a"], [])


def test_a_restart_that_could_not_be_done_is_tried_again():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    due(restarts, 0)
    restarts.carried_out("a", False, "no such container", 100)
    assert due(restarts, 5000) == ([], [])
    assert due(restarts, 10_000) == (["a"], [])


def test_one_that_does_not_come_back_in_time_is_restarted_again():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    due(restarts, 0)
    restarts.carried_out("a", True, "done", 1000)
    assert restarts.overdue(CONFIG, 900_000) == []
    assert restarts.overdue(CONFIG, 901_000) == ["a"]
    assert due(restarts, 901_000) == (["a"], [])


def test_a_crashed_one_that_comes_back_by_itself_needs_no_restart():
    restarts = Restarts()
    restarts.want("a", "g", CRASH, 0)
    assert restarts.serves("a", 500)
    assert due(restarts, 1000) == ([], [])
    assert not restarts.holds_out("a")


def test_one_that_said_it_is_out_of_memory_is_restarted_though_it_answers():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    assert not restarts.serves("a", 500)
    assert restarts.holds_out("a")


def test_it_falls_again_while_it_is_awaited():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    due(restarts, 0)
    restarts.carried_out("a", True, "done", 1000)
    assert restarts.holds_out("a")
    assert restarts.want("a", "g", OOM, 5000)
    assert due(restarts, 5000) == ([], [])
    assert due(restarts, 10_000) == (["a"], [])


def test_an_operator_s_restart_does_not_wait():
    restarts = Restarts()
    for at in (0.0, 1e5, 2e5):
        restarts.want("a", "g", OOM, at)
        due(restarts, at)
        cycle(restarts, "a", at)
    restarts.want("a", "g", Failure(Cause.OPERATOR, "asked for"), 3e5)
    assert due(restarts, 3e5) == (["a"], [])


def test_an_operator_s_word_ends_what_the_limit_had_decided():
    restarts, none_allowed = Restarts(), RestartConfig(most_per_hour=0)
    restarts.want("a", "g", OOM, 0)
    assert due(restarts, 0, none_allowed) == ([], ["a"])
    assert not restarts.want("a", "g", OOM, 500)
    assert restarts.want("a", "g", Failure(Cause.OPERATOR, "asked for"), 1000)
    assert due(restarts, 1000, none_allowed) == (["a"], [])


def test_an_operator_brings_back_what_was_left_out():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    assert due(restarts, 0, RestartConfig(most_per_hour=0)) == ([], ["a"])
    assert restarts.bring_back("a")
    assert not restarts.holds_out("a")
    assert not restarts.bring_back("a")


def test_one_whose_restart_is_long_over_was_not_left_out():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    due(restarts, 0)
    cycle(restarts, "a", 0)
    assert not restarts.bring_back("a")
    assert restarts.plans == {}, "what was counted is forgotten all the same"


def test_another_sidecar_goes_on_with_the_same_counts():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    due(restarts, 0)
    restarts.want("b", "g", CRASH, 1000)
    state = json.loads(json.dumps(restarts.dump(5000)))
    other = Restarts()
    other.restore(state, 1_005_000)
    assert other.stage("a") is Stage.AWAITED
    assert due(other, 1_006_000) == ([], [])
    other.serves("a", 1_007_000)
    assert due(other, 1_008_000) == (["b"], [])
    other.want("a", "g", OOM, 1_008_500)
    assert other.plans["a"].recent(1_009_000) == 1


def taken_over():
    """The restarts of a sidecar that took over while another's order was carried out."""
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    due(restarts, 0)
    other = Restarts()
    other.restore(json.loads(json.dumps(restarts.dump(1000))), 1000)
    return other


def test_an_order_of_which_nobody_saw_the_end_is_repeated_soon_where_no_engine_is_there():
    restarts = taken_over()
    assert restarts.overdue(CONFIG, 59_000, lambda _: False) == []
    assert restarts.overdue(CONFIG, 61_000, lambda _: False) == ["a"]
    assert due(restarts, 61_000) == (["a"], [])
    restarts.carried_out("a", True, "done", 62_000)
    assert restarts.overdue(CONFIG, 200_000, lambda _: False) == []


def test_an_order_of_which_nobody_saw_the_end_is_awaited_while_its_engine_is_there():
    restarts = taken_over()
    assert restarts.overdue(CONFIG, 500_000, lambda _: True) == []
    third = Restarts()
    third.restore(json.loads(json.dumps(restarts.dump(500_000))), 500_000)
    assert third.overdue(CONFIG, 500_000, lambda _: False) == ["a"]


def test_an_operators_restart_that_fails_waits_before_it_is_tried_again():
    restarts = Restarts()
    restarts.want("a", "g", Failure(Cause.OPERATOR, "asked for"), 0)
    assert due(restarts, 0) == (["a"], [])
    restarts.carried_out("a", False, "no such container", 100)
    assert due(restarts, 5000) == ([], [])
    assert due(restarts, 10_000) == (["a"], [])


def test_a_strange_dump_is_refused():
    with pytest.raises((KeyError, ValueError, TypeError)):
        Restarts().restore({"a": {"stage": "flying"}}, 0)


def test_an_operators_word_ends_the_pause_of_a_restart_that_waits():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    due(restarts, 0)
    cycle(restarts, "a", 0, took=2000)
    restarts.want("a", "g", OOM, 2000)
    assert due(restarts, 2000) == ([], [])
    assert restarts.want("a", "g", Failure(Cause.OPERATOR, "asked for"), 2500)
    assert restarts.holds_out("a"), "it is out of memory all the same"
    other = Restarts()
    other.restore(json.loads(json.dumps(restarts.dump(2600))), 2600)
    assert due(restarts, 3000) == due(other, 3000) == (["a"], [])
    restarts.carried_out("a", False, "no such container", 3500)
    assert due(restarts, 4000) == ([], []), "what fails is tried again by the limits"


def test_asked_for_twice_by_an_operator_it_is_done_once():
    restarts, asked = Restarts(), Failure(Cause.OPERATOR, "asked for")
    restarts.want("b", "g", OOM, 0)
    due(restarts, 0)
    assert restarts.want("a", "g", asked, 100)
    assert not restarts.want("a", "g", asked, 200)


def test_a_change_to_other_arguments_takes_the_place_of_a_restart_that_is_not_under_way():
    restarts = Restarts()
    restarts.want("a", "g", OOM, 0)
    assert restarts.set_aside("a", 100)
    assert due(restarts, 500) == ([], [])
    assert not restarts.holds_out("a")
    restarts.want("a", "g", OOM, 1000)
    due(restarts, 1000)
    assert not restarts.set_aside("a", 1100)
    assert restarts.set_aside("of no plan", 1100)
