"""Arrival rates from the counters of the leases."""

from __future__ import annotations

import random

import pytest

from sidecar.control.arrivals import ArrivalCounts, Arrivals
from tokenweir.contract.records import Lease


def feed(arrivals, per_second, seconds, begin=0.0, burst=False):
    for k in range(int(seconds * 4)):
        arrivals.observe(round(per_second / 4), begin + 250.0 * (k + 1), burst)
    return begin + 1000.0 * seconds


def test_both_rates_settle_on_a_steady_one():
    arrivals = Arrivals()
    feed(arrivals, 40, 60)
    assert arrivals.fast == pytest.approx(40)
    assert arrivals.usual == pytest.approx(40)
    assert arrivals.last_second() == 40


def test_when_nothing_comes_any_more_both_rates_end_at_zero():
    arrivals = Arrivals()
    now = feed(arrivals, 40, 60)
    now = feed(arrivals, 0, 30, now)
    assert arrivals.fast == 0
    assert arrivals.usual > 0
    feed(arrivals, 0, 900, now)
    assert arrivals.usual == 0


def test_there_is_no_usual_rate_at_first():
    arrivals = Arrivals()
    feed(arrivals, 40, 9)
    assert arrivals.usual is None


def test_the_fast_rate_sees_a_jump_within_half_a_second():
    arrivals = Arrivals()
    now = feed(arrivals, 40, 60)
    feed(arrivals, 200, 0.5, now)
    assert arrivals.fast > 120
    assert arrivals.usual < 45


def test_in_a_burst_the_usual_rate_follows_more_slowly():
    quick, slow = Arrivals(), Arrivals()
    for arrivals, burst in ((quick, False), (slow, True)):
        now = feed(arrivals, 40, 120)
        feed(arrivals, 200, 60, now, burst)
    assert slow.usual < 80 < quick.usual


def test_random_arrivals_of_a_steady_rate_are_no_jump():
    arrivals, source = Arrivals(), random.Random(1)
    highest = 0.0
    for k in range(4 * 3600):
        count = sum(source.random() < 0.05 for _ in range(200))
        arrivals.observe(count, 250.0 * k)
        if k > 400:
            highest = max(highest, arrivals.fast / (arrivals.usual or 1))
    assert highest < 3


def leases(sequence, **arrivals):
    made = {}
    for gateway, models in arrivals.items():
        lease = Lease(id=gateway, time_ms=1, sequence=sequence, arrivals=models)
        made[gateway] = Lease.read(lease.dump())
    return made


def test_counters_of_all_gateways_add_up():
    counts = ArrivalCounts()
    counts.new(leases(1, g1={"m": 100}, g2={"m": 7}))
    assert counts.new(leases(2, g1={"m": 103}, g2={"m": 9})) == {"m": 5}


def test_a_new_gateway_begins_at_what_it_says():
    counts = ArrivalCounts()
    counts.new(leases(1, g1={"m": 100}))
    assert counts.new(leases(2, g1={"m": 101}, g2={"m": 5000})) == {"m": 1}


def test_a_restarted_gateway_takes_nothing_back():
    counts = ArrivalCounts()
    counts.new(leases(1, g1={"m": 100}))
    assert counts.new(leases(2, g1={"m": 3})) == {"m": 0}
    assert counts.new(leases(3, g1={"m": 4})) == {"m": 1}


def test_a_lease_that_was_read_already_counts_once():
    counts = ArrivalCounts()
    counts.new(leases(1, g1={"m": 100}))
    counts.new(leases(2, g1={"m": 110}))
    assert counts.new(leases(2, g1={"m": 110})) == {"m": 0}
