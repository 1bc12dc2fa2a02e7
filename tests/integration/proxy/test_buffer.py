"""The elastic buffer: in which order those who wait are served, over all workers."""

from __future__ import annotations

import http.client
import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.proxy.line import KEYS, Line, as_key
from tests.integration.servers import quickest, wait_until
from tests.integration.upstream import Answer, Received, Upstream, held

Start = Callable[..., Gateway]


def test_one_key_s_flood_does_not_delay_another_s_single_request(line: Line) -> None:
    for k in range(6):
        line.wait(f"flood-{k}", as_key("flood"))
    line.wait("other", as_key("other"))
    assert line.served().index("other") <= 1


def test_a_key_of_more_weight_gets_so_much_more(start_gateway: Start, upstream: Upstream) -> None:
    keys = [{**key, "weight": weight} for key, weight in zip(KEYS, (1, 4), strict=True)]
    line = Line(
        start_gateway([backend(upstream, concurrency=1)], {"keys": keys}), upstream, **as_key("flood")
    )
    for k in range(3):
        line.wait(f"light-{k}", as_key("flood"))
    for k in range(3):
        line.wait(f"heavy-{k}", as_key("other"))
    assert line.served()[:3] == ["heavy-0", "heavy-1", "heavy-2"]


def test_high_priority_goes_before_low_over_all_workers(line: Line) -> None:
    for k in range(3):
        line.wait(f"low-{k}", as_key("flood", **{"X-Priority": "low"}))
    line.wait("high", as_key("other", **{"X-Priority": "high"}))
    assert line.depth(priority="low") == 3
    assert line.depth(priority="high") == 1
    assert line.served() == ["high", "low-0", "low-1", "low-2"]


@pytest.mark.parametrize("client", [as_key("other"), {}], ids=["of a key", "without a key"])
def test_a_client_s_high_request_does_not_stand_behind_its_low_ones(
    start_gateway: Start, upstream: Upstream, client: dict[str, str]
) -> None:
    line = Line(
        start_gateway([backend(upstream, concurrency=1)], {"keys": KEYS} if client else {}),
        upstream,
        **client,
    )
    for k in range(3):
        line.wait(f"low-{k}", {**client, "X-Priority": "low"})
    line.wait("high", {**client, "X-Priority": "high"})
    assert line.served() == ["high", "low-0", "low-1", "low-2"]


def test_first_come_first_served_can_be_chosen(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway(settings={"keys": KEYS})
    gateway.publish(backend(upstream, concurrency=1), queue={"order": "fifo"})
    line = Line(gateway, upstream, **as_key("flood"))
    line.wait("low", as_key("flood", **{"X-Priority": "low"}))
    line.wait("high", as_key("other", **{"X-Priority": "high"}))
    assert line.served() == ["low", "high"]


def test_a_small_request_passes_a_large_one_that_has_no_room(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway()
    gateway.learn(llama={"mean": 10, "median": 10, "spread": 0.1, "count": 1000})
    gateway.publish(backend(upstream, capacity=6000), queue={"order": "fifo"})
    permits = held()
    upstream.answer = Answer(permits=permits)
    long = [{"role": "user", "content": "word " * 3000}]
    connections = [gateway.open(messages=long, user="first")]
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    connections.append(gateway.open(messages=long, user="large"))
    wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 1, what="a waiter")
    connections.append(gateway.open(user="small"))
    wait_until(lambda: gateway.inflight() == 2, what="the small one in service")
    assert gateway.metric("tokenweir_queue_depth") == 1
    for _ in connections:
        permits.release()
    assert [connection.getresponse().status for connection in connections] == [200] * 3


def test_a_killed_worker_takes_no_other_s_waiters_with_it(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream, concurrency=1)], workers=3)
    line = Line(gateway, upstream)
    for k in range(9):
        line.wait(str(k))
    busy = line.gateway.workers()
    os.kill(busy[0], signal.SIGKILL)
    wait_until(lambda: len(gateway.workers()) == 3 and busy[0] not in gateway.workers(), what="a new worker")

    def outcome(connection: http.client.HTTPConnection) -> int:
        try:
            return connection.getresponse().status
        except (ConnectionError, http.client.HTTPException):
            return 0

    for _ in range(20):
        line.permits.release()
    outcomes = [outcome(connection) for connection in line.connections]
    lost = outcomes.count(0)
    assert lost < 10, "the connections are spread over three workers"
    assert outcomes.count(200) == 10 - lost
    gateway.settle()
    assert line.depth() == 0


def test_old_and_new_workers_keep_one_order_over_a_reload(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway()
    gateway.publish(backend(upstream, concurrency=1), queue={"order": "fifo"})
    line = Line(gateway, upstream)
    for k in range(4):
        line.wait(f"old-{k}")
    before = set(gateway.workers())
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: len(set(gateway.workers()) - before) == 2, what="new workers")
    wait_until(lambda: gateway.get("/readyz").status_code == 200, what="a ready gateway")
    for k in range(4):
        line.wait(f"new-{k}")
    assert line.served() == [f"{age}-{k}" for age in ("old", "new") for k in range(4)]


def test_a_place_that_is_freed_is_given_on_within_milliseconds(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, concurrency=1)], workers=2)
    ended: list[float] = []
    gaps: list[float] = []

    def answer(_: Received) -> Answer:
        if ended:
            gaps.append(time.monotonic() - ended[-1])
        ended.append(time.monotonic() + 0.02)
        return Answer(delay=0.02)

    upstream.answer = answer

    def usual_gap() -> float:
        ended.clear()
        gaps.clear()
        list(pool.map(lambda _: gateway.post(), range(30)))
        return sorted(gaps)[len(gaps) // 2]

    with ThreadPoolExecutor(4) as pool:
        assert quickest(usual_gap, enough=0.012, attempts=20) < 0.012
    assert gateway.metric("tokenweir_queue_wake_seconds_count") > 0


def test_who_waits_longest_is_shown(line: Line) -> None:
    line.wait("a", as_key("other"))

    def shown() -> bool:
        metrics = line.gateway.metrics()
        series = 'tokenweir_queue_oldest_seconds{model="llama",priority="normal",key="other"}'
        return metrics.get(series, 0) > 0.2

    wait_until(shown, what="the longest wait")
    assert line.gateway.metric("tokenweir_queue_bytes", priority="normal") > 100
    line.served()


def test_the_article_s_trigger_lets_requests_wait_while_every_memory_is_nearly_full(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway()
    queue = {"trigger": "memory", "trigger_memory": 0.9, "order": "score"}
    gateway.publish(backend(upstream, memory=0.95, low=6, high=1.5), policy="hybrid", queue=queue)
    with ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(gateway.post) for _ in range(2)]
        wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 2, what="two waiters")
        gateway.publish(backend(upstream, memory=0.5, low=60, high=15), policy="hybrid", queue=queue)
        assert [one.result(20).status_code for one in waiting] == [200, 200]


def test_what_others_could_use_is_held_for_the_first_one_after_a_while(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway()
    gateway.learn(llama={"mean": 10, "median": 10, "spread": 0.1, "count": 1000})
    gateway.publish(backend(upstream, capacity=6000), queue={"order": "fifo", "pass_ms": 300})
    permits = held()
    upstream.answer = Answer(permits=permits)
    long = [{"role": "user", "content": "word " * 3000}]
    connections = [gateway.open(messages=long, user="first")]
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    connections.append(gateway.open(messages=long, user="large"))
    wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 1, what="a waiter")
    time.sleep(0.8)
    connections.append(gateway.open(user="small"))
    wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 2, what="two waiters")
    time.sleep(0.3)
    assert gateway.inflight() == 1, "the only backend is held for the large one"
    for _ in connections:
        permits.release()
    assert [connection.getresponse().status for connection in connections] == [200] * 3
    # There is room for both by then, and one worker may be quicker than the other.
    users = [received.json["user"] for received in upstream.received]
    assert (users[0], set(users[1:])) == ("first", {"large", "small"})


def test_what_is_held_for_the_first_one_is_held_from_other_models_too(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway(settings={"models": [{"name": "llama"}, {"name": "adapter"}]})
    shared = backend(upstream, capacity=6000, models={"llama": "llama", "adapter": "adapter"})
    gateway.learn(
        **{name: {"mean": 10, "median": 10, "spread": 0.1, "count": 1000} for name in ("llama", "adapter")}
    )
    gateway.publish(shared, queue={"order": "fifo", "pass_ms": 60_000})
    permits = held()
    upstream.answer = Answer(permits=permits)
    long = [{"role": "user", "content": "word " * 3000}]
    connections = [gateway.open(messages=long, user="first")]
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    connections.append(gateway.open(messages=long, user="large"))
    wait_until(lambda: gateway.metric("tokenweir_queue_depth", model="llama") == 1, what="a waiter")
    connections.append(gateway.open(model="adapter", user="early"))
    wait_until(lambda: gateway.inflight() == 2, what="one of the other model, as long as nothing is held")
    gateway.publish(shared, queue={"order": "fifo", "pass_ms": 300})
    time.sleep(0.8)
    connections.append(gateway.open(model="adapter", user="late"))
    wait_until(lambda: gateway.metric("tokenweir_queue_depth", model="adapter") == 1, what="a waiter")
    for _ in connections:
        permits.release()
    assert [connection.getresponse().status for connection in connections] == [200] * 4
    users = [received.json["user"] for received in upstream.received]
    assert (users[:2], set(users[2:])) == (["first", "early"], {"large", "late"})
