"""Who may not wait, or not any longer: the bounds of the buffer, and what is told who is refused."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.proxy.line import KEYS, Line, as_key
from tests.integration.servers import PATIENCE, wait_until
from tests.integration.upstream import Answer, Upstream

Start = Callable[..., Gateway]


def test_a_class_has_bounds_of_its_own(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway()
    gateway.publish(
        backend(upstream, concurrency=1),
        queue={"classes": {"low": {"max_waiting": 1}, "normal": {"max_bytes": 5000}}},
    )
    line = Line(gateway, upstream)
    line.wait("low", {"X-Priority": "low"})
    assert gateway.post(headers={"X-Priority": "low"}).status_code == 429
    assert gateway.post(user="x" * 6000).status_code == 429
    line.wait("high", {"X-Priority": "high"}, more="x" * 6000)
    assert line.depth() == 2
    assert sorted(line.served()) == ["high", "low"]


def test_who_is_refused_is_told_where_it_stood_and_when_to_come_again(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway()
    gateway.publish(backend(upstream, concurrency=1), queue={"max_waiting": 2})
    line = Line(gateway, upstream)
    line.wait("a")
    line.wait("b")
    answer = gateway.post()
    assert answer.status_code == 429
    error = answer.json()["error"]
    assert (error["code"], error["reason"]) == ("overloaded", "queue_full")
    assert (error["position"], error["waiting"]) == (3, 2)
    assert error["estimated_wait_ms"] > 0
    assert "it would be number 3, 2 wait" in error["message"]
    seconds = int(answer.headers["retry-after"])
    assert error["estimated_wait_ms"] / 1000 <= seconds <= max(2, 1.5 * error["estimated_wait_ms"] / 1000 + 1)
    gateway.expect(1, "tokenweir_queue_refusals_total", reason="queue_full")
    line.served()


@pytest.mark.parametrize(("asked", "least", "most"), [("0.3", 0.3, 5), ("200ms", 0.2, 5), ("0", 0, 5)])
def test_a_client_can_say_how_long_it_would_wait(line: Line, asked: str, least: float, most: float) -> None:
    begin = time.monotonic()
    answer = line.gateway.post(headers=as_key("other", **{"X-Max-Wait": asked}))
    assert answer.status_code == 429
    assert answer.json()["error"]["reason"] == "max_wait"
    assert least <= time.monotonic() - begin < most
    assert line.depth() == 0


@pytest.mark.parametrize("asked", ["soon", "-1", "nan", "1e9", "0x10", "5m", "5,6", "1.5.2"])
def test_a_wait_that_is_no_time_is_400(line: Line, asked: str) -> None:
    answer = line.gateway.post(headers=as_key("other", **{"X-Max-Wait": asked}))
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "invalid_max_wait"
    assert line.depth() == 0


def test_a_wait_without_end_is_as_long_as_the_class_may_wait(line: Line) -> None:
    line.wait("patient", headers=as_key("other", **{"X-Max-Wait": "9" * 400}))
    assert line.served() == ["patient"]


def test_who_cannot_be_served_in_time_is_refused_at_once(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream, concurrency=1)], settings={"keys": KEYS})
    upstream.answer = Answer(delay=0.2)
    stop = threading.Event()

    def load() -> None:
        while not stop.is_set():
            gateway.post(headers=as_key("flood"))

    with ThreadPoolExecutor(8) as pool:
        for _ in range(8):
            pool.submit(load)
        try:
            time.sleep(4)

            def refused_at_once() -> bool:
                begin = time.monotonic()
                answer = gateway.post(headers=as_key("flood", **{"X-Max-Wait": "400ms"}))
                return answer.status_code == 429 and time.monotonic() - begin < 0.3

            wait_until(refused_at_once, what="a refusal at once")
        finally:
            stop.set()
    gateway.settle()


def test_503_where_no_backend_can_be_reached_any_more(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway()
    gateway.publish(backend(upstream, concurrency=1), queue={"max_wait_ms": 1500})
    line = Line(gateway, upstream)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gateway.post)
        wait_until(lambda: line.depth() == 1, what="a waiter")
        gateway.publish(backend(upstream, concurrency=1, state="down"), queue={"max_wait_ms": 1500})
        answer = waiting.result(20)
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_capacity"
    assert int(answer.headers["retry-after"]) >= 1
    line.served()


HOUR = 3_600_000


def test_who_waits_for_a_backend_that_is_gone_is_told_so_long_before_its_wait_is_over(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway(settings={"health": {"eject_ms": 100}})
    gateway.publish(backend(upstream, concurrency=1), queue={"max_wait_ms": HOUR})
    line = Line(gateway, upstream)
    with ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(gateway.post) for _ in range(3)]
        wait_until(lambda: line.depth() == 3, what="three waiters")
        gateway.publish(backend(upstream, concurrency=1, state="down"), queue={"max_wait_ms": HOUR})
        answers = [one.result(PATIENCE) for one in waiting]
    for answer in answers:
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == answer.json()["error"]["reason"] == "no_capacity"
        assert int(answer.headers["retry-after"]) >= 1
    line.served()


def test_nobody_comes_to_wait_for_a_backend_that_is_gone(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream, concurrency=1)], {"health": {"eject_ms": 600_000}})
    line = Line(gateway, upstream)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gateway.post, user="second")
        wait_until(lambda: line.depth() == 1, what="a waiter")
        gateway.publish(backend(upstream, concurrency=1, state="down"), queue={"max_wait_ms": HOUR})
        answer = gateway.post(user="third")
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == answer.json()["error"]["reason"] == "no_capacity"
        assert line.depth() == 1
        gateway.publish(backend(upstream, concurrency=1))
        line.permits.release(2)
        assert waiting.result(PATIENCE).status_code == 200, "who waited was not sent away in a moment"
    assert line.served() == ["second"]
