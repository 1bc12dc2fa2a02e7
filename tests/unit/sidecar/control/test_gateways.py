"""The gateways' leases."""

from __future__ import annotations

import pytest

from sidecar.control.gateways import Gateways
from sidecar.control.model_load import Waiting
from tokenweir.contract.records import BackendLoad, Lease, Priority, QueueState


def lease(name="g1", **members):
    return Lease(id=name, time_ms=1, sequence=1, **members).dump()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": 2, "id": "g", "time_ms": 1, "sequence": 1}',
        '{"id": "g", "time_ms": 1, "sequence": 1}',
        '{"schema": 1}',
        '{"schema": 1, "id": "g", "time_ms": 1, "sequence": 1, "backends": {"a": {"n": -1}}}',
        '{"schema": 1, "id": "g", "time_ms": 1, "sequence": 1, "backends": {"a": {"n": NaN}}}',
        '{"schema": 1, "id": "g", "time_ms": 1, "sequence": 1, "backends": {"a": 3}}',
        '{"schema": 1, "id": "g", "time_ms": 1, "sequence": 1, "backends": 3}',
    ],
)
def test_a_lease_that_cannot_be_believed_is_refused(text):
    gateways = Gateways()
    gateways.update([text])
    assert (gateways.refused, gateways.leases) == (1, {})


def test_load_of_several_gateways_adds_up_and_goes_with_their_leases():
    gateways = Gateways()
    gateways.update(
        [lease("g1", backends={"a": BackendLoad(n=2)}), lease("g2", backends={"a": BackendLoad(n=3)})]
    )
    assert gateways.in_flight("a") == 5
    gateways.update([lease("g2", backends={"a": BackendLoad(n=3)})])
    assert gateways.in_flight("a") == 3
    gateways.update([])
    assert gateways.in_flight("a") == 0


def test_a_request_that_just_ended_still_counts_as_leased_for_one_look():
    gateways = Gateways()
    gateways.update([lease(backends={"a": BackendLoad(n=2, held=50)})])
    gateways.update([lease()])
    assert gateways.leased("a") == (2, 50)
    gateways.update([lease()])
    assert gateways.leased("a") == (0, 0)


def test_a_bad_lease_is_counted_and_does_not_stop_the_others():
    gateways = Gateways()
    gateways.update(["nonsense", lease(backends={"a": BackendLoad(n=1)})])
    assert (gateways.refused, gateways.in_flight("a")) == (1, 1)


def test_who_ejects_a_backend_is_told():
    gateways = Gateways()
    gateways.update([lease("g1", ejected={"a": "hung"}), lease("g2")])
    assert gateways.ejecting("a") == {"g1": "hung"}


def test_who_waits_for_a_model_is_summed_over_the_gateways():
    gateways = Gateways()
    first = QueueState(depth=3, oldest_ms=120, oldest_by_priority={"low": 120, "high": 20})
    second = QueueState(depth=1, oldest_ms=50, oldest_by_priority={"high": 50})
    gateways.update([lease("g1", queue={"m": first}), lease("g2", queue={"m": second})])
    assert gateways.waiting("m") == Waiting(4, {Priority.LOW: 120, Priority.HIGH: 50})
    assert gateways.waiting("other") == Waiting()


def test_a_gateway_that_tells_no_classes_apart_counts_as_normal():
    gateways = Gateways()
    gateways.update([lease("g1", queue={"m": QueueState(depth=2, oldest_ms=70)})])
    assert gateways.waiting("m") == Waiting(2, {Priority.NORMAL: 70})


def test_a_backend_is_out_everywhere_only_when_every_gateway_says_so():
    gateways = Gateways()
    assert not gateways.ejected_everywhere("a")
    gateways.update([lease("g1", ejected={"a": "connect"}), lease("g2")])
    assert not gateways.ejected_everywhere("a")
    gateways.update([lease("g1", ejected={"a": "connect"}), lease("g2", ejected={"a": "hang"})])
    assert gateways.ejected_everywhere("a")


def test_who_tries_a_backend_again_is_told_with_why_it_was_out():
    gateways = Gateways()
    gateways.update([lease("g1", tried={"a": "status"}), lease("g2", ejected={"a": "hang"})])
    assert gateways.trying("a") == {"g1": "status"}
    assert gateways.ejecting("a") == {"g2": "hang"}
    assert not gateways.ejected_everywhere("a")
