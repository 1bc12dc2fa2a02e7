"""The wait where nothing has room: in order, bounded, and left without a trace."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import PATIENCE, replace_workers, wait_until
from tests.integration.upstream import Answer, Received, Upstream, held

Start = Callable[..., Gateway]


@pytest.fixture
def narrow(start_gateway: Start, upstream: Upstream) -> Gateway:
    """A gateway of two workers before a backend that takes one request at a time."""
    return start_gateway([backend(upstream, concurrency=1)])


def depth(gateway: Gateway) -> float:
    return gateway.metric("tokenweir_queue_depth")


def test_requests_wait_for_room_and_are_served_one_at_a_time(narrow: Gateway, upstream: Upstream) -> None:
    running = []
    permits = held()

    def answer(_: Received) -> Answer:
        running.append(narrow.inflight())
        return Answer(delay=0.1) if len(running) > 1 else Answer(permits=permits)

    upstream.answer = answer
    first = narrow.open()
    wait_until(lambda: narrow.inflight() == 1, what="the first request")
    with ThreadPoolExecutor(5) as pool:
        waiting = [pool.submit(narrow.post) for _ in range(5)]
        wait_until(lambda: depth(narrow) == 5, what="five waiters")
        begin = time.monotonic()
        permits.release()
        answers = [each.result() for each in waiting]
        elapsed = time.monotonic() - begin
    assert first.getresponse().status == 200
    assert all(answer.status_code == 200 for answer in answers)
    assert elapsed >= 0.5
    assert max(int(answer.headers["x-tokenweir-wait-ms"]) for answer in answers) >= 90
    assert running == [1] * 6
    narrow.settle()
    wait_until(lambda: depth(narrow) == 0, what="the empty line")


def test_each_of_those_that_wait_keeps_its_own_body(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream, models={"llama": "meta/llama"}, concurrency=1)], workers=1)
    upstream.answer = Answer(delay=0.05)
    bodies = [
        b'{"messages":[{"role":"user","content":"' + b"x" * (100 * k) + b'"}],"model":"llama"}'
        for k in range(8)
    ]
    with ThreadPoolExecutor(len(bodies)) as pool:
        answers = list(pool.map(lambda body: gateway.post(body=body), bodies))
    assert [answer.status_code for answer in answers] == [200] * len(bodies)
    sent = sorted(received.body for received in upstream.received)
    assert sent == sorted(body.replace(b'"llama"', b'"meta/llama"') for body in bodies)


def test_who_comes_first_is_served_first_over_all_workers(narrow: Gateway, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    connections = []
    for k in range(8):
        connections.append(narrow.open(user=str(k)))
        wait_until(lambda n=k: narrow.inflight() == 1 and depth(narrow) == n, what=f"{k} waiters")
    permits.release(8)
    for connection in connections:
        assert connection.getresponse().read()
    assert [received.json["user"] for received in upstream.received] == [str(k) for k in range(8)]


def test_the_line_is_bounded_in_bytes_over_all_workers(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway()
    gateway.publish(backend(upstream, concurrency=1), queue={"max_bytes": 100_000})
    permits = held()
    upstream.answer = Answer(permits=permits)
    connections = [gateway.open()]
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    connections.append(gateway.open(user="x" * 60_000))
    wait_until(lambda: depth(gateway) == 1, what="a waiter")
    refused = gateway.post(user="x" * 60_000)
    assert refused.status_code == 429
    assert refused.json()["error"]["code"] == "overloaded"
    connections.append(gateway.open(user="x" * 30_000))
    wait_until(lambda: depth(gateway) == 2, what="another waiter")
    permits.release(3)
    assert [connection.getresponse().status for connection in connections] == [200] * 3
    gateway.settle()
    connections = [gateway.open()]
    wait_until(lambda: gateway.inflight() == 1, what="the next request")
    connections.append(gateway.open(user="x" * 90_000))
    wait_until(lambda: depth(gateway) == 1, what="a waiter: what was served waits no more")
    permits.release(2)
    assert [connection.getresponse().status for connection in connections] == [200] * 2


def test_who_waits_until_its_deadline_is_told_so(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream, concurrency=1)], {"limits": {"deadline_ms": 400}})
    upstream.answer = Answer(delay=2)
    held = gateway.open()
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    answer = gateway.post()
    assert answer.status_code == 504
    error = answer.json()["error"]
    assert error["code"] == "deadline_exceeded"
    assert "its deadline of 0.4 s (limits.deadline)" in error["message"]
    held.close()


def test_a_full_line_is_429_with_retry_after(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway()
    gateway.publish(backend(upstream, concurrency=1), queue={"max_waiting": 1})
    permits = held()
    upstream.answer = Answer(permits=permits)
    connections = [gateway.open()]
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    connections.append(gateway.open())
    wait_until(lambda: depth(gateway) == 1, what="a waiter")
    answer = gateway.post()
    assert answer.status_code == 429
    assert answer.json()["error"]["code"] == "overloaded"
    assert 1 <= int(answer.headers["retry-after"]) <= 60
    permits.release(2)
    assert all(connection.getresponse().status == 200 for connection in connections)


def test_a_wait_over_its_limit_is_429(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway()
    gateway.publish(backend(upstream, concurrency=1), queue={"max_wait_ms": 200})
    permits = held()
    upstream.answer = Answer(permits=permits)
    first = gateway.open()
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    begin = time.monotonic()
    assert gateway.post().status_code == 429
    assert time.monotonic() - begin > 0.15
    permits.release()
    assert first.getresponse().status == 200
    wait_until(lambda: depth(gateway) == 0, what="the empty line")


def test_a_client_that_leaves_while_it_waits_gives_up_its_place(narrow: Gateway, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    first = narrow.open()
    wait_until(lambda: narrow.inflight() == 1, what="the first request")
    impatient, patient = narrow.open(user="impatient"), None
    wait_until(lambda: depth(narrow) == 1, what="a waiter")
    impatient.close()
    wait_until(lambda: depth(narrow) == 0, what="the empty line")
    patient = narrow.open(user="patient")
    wait_until(lambda: depth(narrow) == 1, what="another waiter")
    permits.release(2)
    assert first.getresponse().status == 200
    assert patient.getresponse().status == 200
    assert [received.json.get("user") for received in upstream.received] == [None, "patient"]
    # Each worker writes its own lines, so their order tells nothing.
    assert sorted(line["status"] for line in narrow.access_log(3)) == [200, 200, 499]


def test_waiters_of_a_draining_worker_are_served(narrow: Gateway, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    connections = [narrow.open()]
    wait_until(lambda: narrow.inflight() == 1, what="the first request")
    connections += [narrow.open() for _ in range(4)]
    wait_until(lambda: depth(narrow) == 4, what="four waiters")
    before = set(narrow.workers())
    narrow.signal(signal.SIGHUP)
    wait_until(lambda: set(narrow.workers()) - before, what="new workers")
    permits.release(5)
    for connection in connections:
        assert connection.getresponse().status == 200
    narrow.settle()


def test_a_new_backend_serves_those_who_wait(
    narrow: Gateway, start_upstream: Callable[..., Upstream]
) -> None:
    with ThreadPoolExecutor(2) as pool:
        hanging = start_upstream("gpu-b")
        permits = held()
        hanging.answer = Answer(permits=permits)
        narrow.publish(backend(hanging, concurrency=1))
        first = pool.submit(narrow.post)
        wait_until(lambda: narrow.inflight() == 1, what="the first request")
        second = pool.submit(narrow.post)
        wait_until(lambda: depth(narrow) == 1, what="a waiter")
        fresh = start_upstream("gpu-c")
        narrow.publish(backend(hanging, concurrency=1), backend(fresh, concurrency=1))
        assert second.result(PATIENCE).json()["server"] == "gpu-c"
        assert not first.done()
        permits.release()
        assert first.result(PATIENCE).status_code == 200


def test_a_dead_worker_s_place_is_free_again(narrow: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(permits=held())
    first = narrow.open()
    wait_until(lambda: narrow.inflight() == 1, what="the first request")
    replace_workers(narrow.workers)
    upstream.answer = Answer()

    def served() -> bool:
        try:
            return narrow.post().status_code == 200
        except httpx.TransportError:
            return False

    wait_until(served, what="a served request")
    narrow.settle()
    first.close()
