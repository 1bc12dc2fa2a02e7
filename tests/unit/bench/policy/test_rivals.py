"""`bench/policy/rivals.py`: each rule does what its formula says."""

from __future__ import annotations

import pytest

from bench.policy.job import Job
from bench.policy.rivals import RIVALS
from bench.policy.routing import WAIT, Reading, Router
from bench.policy.server import Server
from tests.unit.bench.policy.fleets import servers


def made(name: str, fleet: list[Server] | None = None) -> Router:
    """A rule over three servers."""
    return RIVALS[name](fleet or servers(3), 1)


def job(number: int = 0, prompt: int = 160, session: object = None) -> Job:
    """A request."""
    return Job(number, 0.0, prompt, 10, session=session)  # type: ignore[arg-type]


def reading(kv: float = 0.0, waiting: int = 0, tokens: int = 0, generated: int = 0) -> Reading:
    """A look at a server."""
    return Reading(True, kv, 0, waiting, tokens, generated, 0.0)


def test_round_robin_goes_round() -> None:
    router = made("nginx_round_robin")
    assert [router.choose(job(k), 0) for k in range(6)] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize("name", ["nginx_least_conn", "least_outstanding", "least_outstanding_hold"])
def test_the_least_loaded_is_taken(name: str) -> None:
    router = made(name)
    router.inflight = [4, 1, 3]
    assert router.choose(job(), 0) == 1


@pytest.mark.parametrize("name", ["nginx_random_two", "power_of_two"])
def test_of_two_the_emptier_is_taken_so_the_fullest_never_is(name: str) -> None:
    router = made(name)
    for k in range(50):
        router.inflight = [9, 5, 1]
        assert router.choose(job(k), 0) != 0


def test_a_hash_is_the_same_for_the_same_session() -> None:
    router = made("consistent_hash")
    assert len({router.choose(job(k, session="s"), 0) for k in range(5)}) == 1
    assert len({router.choose(job(k, session=f"s{k}"), 0) for k in range(60)}) == 3


def test_least_memory_sees_only_its_last_look() -> None:
    router = made("least_memory")
    router.looked([reading(0.5), reading(0.2), reading(0.4)], 0)
    assert {router.choose(job(k), 0) for k in range(5)} == {1}


def test_the_hold_keeps_a_fifth_of_the_memory_free() -> None:
    router = made("least_outstanding_hold", servers(1, capacity=1600))
    assert router.choose(job(0, prompt=1000), 0) == 0
    assert router.choose(job(1, prompt=300), 0) == WAIT
    assert router.choose(job(2, prompt=280), 0) == 0


def test_smg_adds_its_own_tokens_since_the_poll() -> None:
    router = made("smg_least_load")
    router.looked([reading(0.1), reading(0.1), reading(0.5)], 0)
    assert router.choose(job(0, prompt=1000), 0) == 0
    assert router.choose(job(1, prompt=1000), 0) == 1


def test_llm_d_adds_memory_queue_and_prefix() -> None:
    router = made("llm_d")
    router.looked([reading(0.5), reading(0.2), reading(0.1, waiting=3)], 0)
    assert router.choose(job(), 0) == 1


def test_dynamo_counts_blocks_to_prefill_and_to_decode() -> None:
    router = made("dynamo", servers(2))
    first = router.choose(job(0, prompt=1600), 0)
    assert router.choose(job(1, prompt=160), 0) != first
    assert router.choose(job(2, prompt=160), 0) != first


def test_cache_aware_goes_to_the_shortest_queue_when_out_of_balance() -> None:
    router = made("cache_aware")
    router.inflight = [100, 10, 80]
    assert router.choose(job(), 0) == 1


def test_ewma_prefers_what_was_fast() -> None:
    router = made("ewma", servers(2))
    for k, latency in ((0, 9000.0), (1, 500.0)):
        done = job(k)
        done.server, done.sent = k, 0.0
        router.inflight[k] += 1
        router.ended(done, latency)
    assert router.choose(job(5), 9000.0) == 1


def test_a_server_that_is_not_there_is_left_alone_for_ten_seconds() -> None:
    router = made("nginx_round_robin")
    asked = job()
    chosen = router.choose(asked, 0)
    router.refused(asked, chosen, 0)
    router.settled(asked)
    assert chosen not in {router.choose(job(k), 5000) for k in range(6)}
    assert chosen in {router.choose(job(k), 10_001) for k in range(6)}
