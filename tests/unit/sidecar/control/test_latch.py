"""The switch that every mode of the control loop is."""

from __future__ import annotations

from sidecar.control.latch import Latch


def test_it_goes_on_once_its_condition_has_held():
    latch = Latch()
    assert not latch.update(True, False, 0, hold=5000)
    assert not latch.update(True, False, 4999, hold=5000)
    assert latch.held(4999) == 4999
    assert latch.update(True, False, 5000, hold=5000)
    assert latch.on


def test_a_gap_in_the_condition_begins_the_hold_anew():
    latch = Latch()
    latch.update(True, False, 0, hold=5000)
    latch.update(False, True, 3000, hold=5000)
    latch.update(True, False, 4000, hold=5000)
    assert not latch.update(True, False, 8000, hold=5000)
    assert latch.update(True, False, 9000, hold=5000)


def test_between_its_two_conditions_it_stays_as_it_is():
    latch = Latch()
    latch.update(True, False, 0)
    assert not latch.update(False, False, 60_000)
    assert latch.on
    assert latch.update(False, True, 60_001)
    assert not latch.on


def test_it_stays_on_for_its_shortest_time():
    latch = Latch()
    latch.update(True, False, 0, stay=10_000)
    assert not latch.update(False, True, 9999, stay=10_000)
    assert latch.update(False, True, 10_000, stay=10_000)


def test_it_goes_off_only_when_that_condition_has_held_too():
    latch = Latch()
    latch.update(True, False, 0)
    assert not latch.update(False, True, 1000, leave_hold=2000)
    assert not latch.update(True, False, 2000, leave_hold=2000)
    assert not latch.update(False, True, 4000, leave_hold=2000)
    assert latch.update(False, True, 6000, leave_hold=2000)


def test_what_another_sidecar_decided_is_taken_over_and_stays_its_time():
    latch = Latch()
    latch.restore(True, 100_000)
    assert latch.on
    assert not latch.update(False, True, 105_000, stay=10_000)
    assert latch.update(False, True, 110_000, stay=10_000)


def test_switches_are_counted():
    latch = Latch()
    for k in range(4):
        latch.update(k % 2 == 0, k % 2 == 1, k)
    assert latch.changes == 4
