"""Levels 1 and 2 of the breaker, as the gateway follows them."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.servers import quickest, replace_workers, wait_until
from tests.integration.upstream import Answer, Upstream, held
from tokenweir.contract.records import ModelControl

Start = Callable[..., Gateway]

REFUSE_NEW = {"llama": ModelControl(level=1, refuse_new=True, retry_after_ms=12_000)}
DROP_LOW = {"llama": ModelControl(level=2, refuse_new=True, drop_low=True, retry_after_ms=8000)}


def ask(
    gateway: Gateway, text: str = "hi", headers: dict[str, str] | None = None, **members: Any
) -> httpx.Response:
    return gateway.post(headers=headers, messages=[{"role": "user", "content": text}], **members)


def code(answer: httpx.Response) -> str:
    return str(answer.json()["error"]["code"])


def test_new_sessions_are_refused_and_known_ones_go_on(gateway: Gateway, upstream: Upstream) -> None:
    assert ask(gateway, "an old chat").status_code == 200
    gateway.publish(backend(upstream), models=REFUSE_NEW)
    refused = ask(gateway, "a new chat")
    assert (refused.status_code, code(refused)) == (503, "new_sessions_rejected")
    assert 12 <= int(refused.headers["retry-after"]) <= 18
    assert "x-tokenweir-backend" not in refused.headers
    later = gateway.post(
        messages=[
            {"role": "user", "content": "an old chat"},
            {"role": "assistant", "content": "yes?"},
            {"role": "user", "content": "go on"},
        ]
    )
    assert later.status_code == 200
    gateway.expect(1, "tokenweir_breaker_refusals_total", level="1")
    gateway.settle()


def test_a_refused_session_is_not_known_by_its_refusal(gateway: Gateway, upstream: Upstream) -> None:
    gateway.publish(backend(upstream), models=REFUSE_NEW)
    assert [ask(gateway, "again").status_code for _ in range(3)] == [503] * 3
    gateway.publish(backend(upstream))
    assert ask(gateway, "again").status_code == 200


@pytest.mark.parametrize(
    ("headers", "members"),
    [({"X-Session-ID": "s1"}, {}), ({}, {"prompt_cache_key": "s1"})],
    ids=["header", "cache key"],
)
def test_a_session_that_names_itself_may_say_anything(
    gateway: Gateway, upstream: Upstream, headers: dict[str, str], members: dict[str, str]
) -> None:
    assert ask(gateway, "one", headers, **members).status_code == 200
    gateway.publish(backend(upstream), models=REFUSE_NEW)
    assert ask(gateway, "quite another", headers, **members).status_code == 200
    assert ask(gateway, "quite another").status_code == 503


def test_the_user_names_a_session_only_where_that_is_set(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], settings={"sessions": {"by_user": True}})
    ask(gateway, "one", user="u1")
    gateway.publish(backend(upstream), models=REFUSE_NEW)
    assert ask(gateway, "two", user="u1").status_code == 200
    assert ask(gateway, "two", user="u2").status_code == 503


def test_an_answer_that_goes_on_another_and_what_only_reads_are_let_through(
    gateway: Gateway, upstream: Upstream
) -> None:
    gateway.publish(backend(upstream), models=REFUSE_NEW)
    body = b'{"model":"llama","input":"more","previous_response_id":"resp_1"}'
    assert gateway.post("/v1/responses", body=body).status_code == 200
    assert gateway.post("/v1/responses", body=b'{"model":"llama","input":"more"}').status_code == 503
    assert gateway.get("/v1/responses/resp_1").status_code != 503
    assert gateway.post("/v1/completions", body=b'{"model":"llama","prompt":"x"}').status_code == 503


def test_a_session_in_a_body_that_nginx_put_into_a_file_is_known_too(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], limits={"body_memory": "16KiB"})
    long = "x" * 60_000
    assert ask(gateway, long).status_code == 200
    gateway.publish(backend(upstream), models=REFUSE_NEW)
    assert ask(gateway, long).status_code == 200
    assert ask(gateway, long + "y").status_code == 503


def test_known_sessions_survive_a_reload_and_a_new_start(
    gateway: Gateway, upstream: Upstream, start_gateway: Start
) -> None:
    ask(gateway, "one", {"X-Session-ID": "s1"})
    wait_until(lambda: gateway.redis.xlen("tw:sessions:known") > 0, what="the session in Redis")
    other = start_gateway([backend(upstream)], name="other", gateway_id="gw-other")
    other.publish(backend(upstream), models=REFUSE_NEW)
    assert ask(other, "two", {"X-Session-ID": "s2"}).status_code == 503
    wait_until(lambda: ask(other, "two", {"X-Session-ID": "s1"}).status_code == 200, what="the known session")


def announced(gateway: Gateway) -> int:
    """Batches of known sessions in Redis."""
    return int(gateway.redis.xlen("tw:sessions:known"))


def test_sessions_that_redis_refused_are_told_by_the_worker_that_polls_next(gateway: Gateway) -> None:
    gateway.redis.execute_command("ACL", "SETUSER", "default", "-xadd")
    assert ask(gateway, headers={"X-Session-ID": "s1"}).status_code == 200
    wait_until(lambda: "xadd" in gateway.error_log(), what="the refusal")
    replace_workers(gateway.workers)
    gateway.redis.execute_command("ACL", "SETUSER", "default", "+xadd")
    wait_until(lambda: announced(gateway) == 1, what="the session in Redis")


def test_a_session_that_a_draining_worker_serves_is_told(narrow: Gateway, upstream: Upstream) -> None:
    first = held()
    upstream.answer = Answer(permits=first)
    streams = [narrow.open({"X-Session-ID": "s1"}, stream=True)]
    wait_until(lambda: announced(narrow) == 1, what="the first session in Redis")
    streams.append(narrow.open({"X-Session-ID": "s2"}, stream=True))
    wait_until(lambda: narrow.metric("tokenweir_queue_depth") == 1, what="the second request")
    before = set(narrow.workers())
    narrow.signal(signal.SIGHUP)
    wait_until(lambda: len(set(narrow.workers()) - before) == 2, what="new workers")
    wait_until(lambda: narrow.error_log().count("gracefully shutting down") >= 2, what="the drain")
    second = held()
    upstream.answer = Answer(permits=second)
    first.release(100)
    wait_until(lambda: announced(narrow) == 2, what="the second session in Redis")
    second.release(100)
    for stream in streams:
        assert b"[DONE]" in stream.getresponse().read()
        stream.close()


def test_another_gateway_hears_of_a_session_within_a_second(
    gateway: Gateway, upstream: Upstream, start_gateway: Start
) -> None:
    other = start_gateway([backend(upstream)], name="other", gateway_id="gw-other")
    names = itertools.count()

    def hear() -> float:
        session = {"X-Session-ID": str(next(names))}
        other.publish(backend(upstream))
        gateway.wait_for("snapshot", other.sequence)
        assert ask(gateway, "one", session).status_code == 200
        told = time.monotonic()
        other.publish(backend(upstream), models=REFUSE_NEW)
        wait_until(lambda: ask(other, "two", session).status_code == 200, what="the known session")
        return time.monotonic() - told

    assert quickest(hear, enough=1) < 1
    assert ask(other, "two", {"X-Session-ID": "unheard of"}).status_code == 503


def test_a_stale_snapshot_refuses_nobody(gateway: Gateway, upstream: Upstream) -> None:
    gateway.publish(backend(upstream), models=DROP_LOW)
    assert ask(gateway, "new").status_code == 503
    gateway.silence()
    wait_until(lambda: ask(gateway, "new").status_code == 200, what="a stale snapshot")


def test_low_priority_is_dropped_and_high_never(gateway: Gateway, upstream: Upstream) -> None:
    session = {"X-Session-ID": "s1"}
    ask(gateway, headers=session)
    gateway.publish(backend(upstream), models=DROP_LOW)
    low = ask(gateway, headers=session | {"X-Priority": "low"})
    assert (low.status_code, code(low)) == (503, "low_priority_dropped")
    assert 8 <= int(low.headers["retry-after"]) <= 12
    assert ask(gateway, headers=session | {"X-Priority": "high"}).status_code == 200
    assert ask(gateway, headers=session).status_code == 200
    gateway.expect(1, "tokenweir_breaker_refusals_total", level="2")


def test_those_of_low_priority_who_wait_are_dropped_first(start_gateway: Start, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    gateway = start_gateway([backend(upstream, concurrency=1)])
    with ThreadPoolExecutor(8) as pool:
        first = pool.submit(ask, gateway, "held")
        wait_until(lambda: gateway.inflight() == 1, what="a full backend")
        low = [pool.submit(ask, gateway, f"low {k}", {"X-Priority": "low"}) for k in range(3)]
        wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 3, what="three waiters")
        high = pool.submit(ask, gateway, "high", {"X-Priority": "high"})
        wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 4, what="four waiters")
        gateway.publish(backend(upstream, concurrency=1), models=DROP_LOW, wait=False)
        answers = [future.result() for future in low]
        assert {code(answer) for answer in answers} == {"low_priority_dropped"}
        assert not first.done(), "they are told at once, while the backend is full"
        permits.release(2)
        assert first.result().status_code == 200
        assert high.result().status_code == 200
    gateway.settle()
    assert gateway.metric("tokenweir_queue_depth") == 0


def test_the_longest_wait_of_each_class_is_in_the_lease(start_gateway: Start, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    gateway = start_gateway([backend(upstream, concurrency=1)])
    with ThreadPoolExecutor(8) as pool:
        futures = [pool.submit(ask, gateway, "held")]
        wait_until(lambda: gateway.inflight() == 1, what="a full backend")
        futures.append(pool.submit(ask, gateway, "low", {"X-Priority": "low"}))
        wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 1, what="a waiter")
        time.sleep(0.3)
        futures.append(pool.submit(ask, gateway, "high", {"X-Priority": "high"}))
        wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 2, what="two waiters")
        wait_until(lambda: gateway.lease()["queue"]["llama"]["depth"] == 2, what="both in the lease")
        queue = gateway.lease()["queue"]["llama"]
        ages = queue["oldest_by_priority"]
        assert set(ages) == {"low", "high"}
        assert ages["low"] >= ages["high"] + 200
        assert ages["low"] == queue["oldest_ms"]
        permits.release(3)
        assert all(future.result().status_code == 200 for future in futures)
    wait_until(lambda: gateway.lease()["queue"] in ({}, []), what="an empty queue in the lease")


def test_the_sessions_of_two_api_keys_are_apart(start_gateway: Start, upstream: Upstream) -> None:
    keys = [{"id": name, "sha256": sha256(name)} for name in ("team-a", "team-b")]
    gateway = start_gateway([backend(upstream)], settings={"keys": keys, "require_key": True})
    first, second = (
        {"Authorization": f"Bearer {name}", "X-Session-ID": "1"} for name in ("team-a", "team-b")
    )
    assert ask(gateway, headers=first).status_code == 200
    gateway.publish(backend(upstream), models=REFUSE_NEW)
    assert ask(gateway, headers=first).status_code == 200
    assert ask(gateway, headers=second).status_code == 503
