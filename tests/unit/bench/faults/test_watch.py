"""What a gateway's lease says."""

from __future__ import annotations

from bench.faults.watch import in_flight


def test_a_lease_is_summed_over_its_backends_and_queues():
    load = {"n": 1, "held": 100, "remaining": 50, "variance": 4}
    lease = {"backends": {"a": load, "b": load}, "queue": {"m": {"depth": 3, "oldest_ms": 10}}}
    assert in_flight(lease) == {"n": 2, "held": 200, "remaining": 100, "variance": 8, "waiting": 3}


def test_an_idle_gateway_counts_nothing_and_a_missing_one_is_not_idle():
    assert not any(in_flight({"backends": {}, "queue": {}}).values())
    assert in_flight(None) == {}
