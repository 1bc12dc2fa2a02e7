"""What clients met on a backend lately."""

from __future__ import annotations

from sidecar.control.experience import Experience, worse_than_peers
from tokenweir.contract.records import Completion


def record(ttft=100, outcome="ok", wait=0, stream=True):
    values = {"id": "r", "gateway": "g", "time_ms": 1, "model": "m", "backend": "a", "kind": "chat"}
    return Completion.model_validate(
        values | {"outcome": outcome, "stream": stream, "ttft_ms": ttft, "wait_ms": wait}
    )


def met(count=10, at=0.0, **members):
    experience = Experience()
    for _ in range(count):
        experience.add(record(**members), at)
    return experience


def worse(own, *peers, now=1000.0):
    return worse_than_peers(own, peers, now, 2.0, 0.05)


def test_one_whose_first_token_takes_twice_as_long_does_worse():
    assert worse(met(ttft=150), met()) is None
    assert worse(met(ttft=250), met()) == "its time to first token is 250 ms, its peers' 100 ms"


def test_the_wait_for_a_place_is_not_the_backend_s():
    assert worse(met(ttft=1100, wait=1000), met()) is None


def test_one_that_fails_more_often_does_worse():
    own = met(8)
    own.add(record(outcome="upstream_error"), 0)
    own.add(record(outcome="upstream_broke"), 0)
    assert worse(own, met()) == "2 of its last 10 requests failed, 0% of its peers'"


def test_where_all_fail_it_does_no_worse():
    assert worse(met(outcome="upstream_error"), met(outcome="upstream_error")) is None


def test_refusals_and_clients_that_left_are_no_failures():
    assert worse(met(outcome="client_gone"), met()) is None
    assert worse(met(outcome="refused"), met()) is None


def test_a_few_completions_say_nothing():
    assert worse(met(4, ttft=900), met()) is None
    assert worse(met(ttft=900), met(4)) is None


def test_what_is_older_than_a_minute_is_forgotten():
    assert worse(met(ttft=900), met(), now=61_000.0) is None


def test_another_engine_begins_with_a_clean_record():
    own = met(8, at=500.0, outcome="upstream_broke")
    assert worse(own, met()) is not None
    own.begin(600.0)
    own.add(record(outcome="upstream_broke"), 550.0)
    assert worse(own, met()) is None
    assert own.failures(1000.0) == (0, 0)
