"""A client that leaves: its upstream is closed at once, and what it held is freed."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Callable

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import quickest, wait_until
from tests.integration.upstream import Answer, Upstream, held

Start = Callable[..., Gateway]


@pytest.mark.parametrize(
    ("answer", "members"),
    [
        (Answer(permits=held()), {"stream": False}),
        (Answer(delay=60), {"stream": True}),
        (Answer(tokens=1000, gap=0.1), {"stream": True}),
    ],
    ids=["before a plain answer", "before a stream", "in the middle of a stream"],
)
def test_the_upstream_is_closed_within_100_ms(
    gateway: Gateway, upstream: Upstream, answer: Answer, members: dict[str, bool]
) -> None:
    upstream.answer = answer

    def leave() -> float:
        count = len(upstream.received)
        connection = gateway.open(**members)
        wait_until(lambda: len(upstream.received) > count, what="the request")
        time.sleep(0.25)
        left = time.monotonic()
        connection.close()
        received = upstream.received[count]
        wait_until(lambda: received.closed_at, what="the close")
        assert received.closed_at is not None
        return received.closed_at - left

    assert quickest(leave, enough=0.1) < 0.1
    gateway.settle()
    assert {record["outcome"] for record in gateway.completions()} == {"client_gone"}


def test_an_engine_that_runs_on_keeps_its_reservation_until_it_is_idle(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, engine="llamacpp")])
    upstream.answer = Answer(permits=held())
    connection = gateway.open()
    wait_until(lambda: upstream.received, what="the request")
    connection.close()
    wait_until(lambda: upstream.received[0].closed_at, what="the close")
    time.sleep(0.2)
    assert gateway.inflight() == 1
    time.sleep(0.2)
    gateway.publish(backend(upstream, engine="llamacpp", load=0, load_age_ms=0))
    gateway.settle()


def test_a_request_that_was_never_sent_leaves_no_reservation(
    start_gateway: Start, upstream: Upstream
) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as waiting:
        port = full.getsockname()[1]
        for _ in range(3):
            filler = waiting.enter_context(socket.socket())
            filler.setblocking(False)
            filler.connect_ex(("127.0.0.1", port))
        gateway = start_gateway([backend(upstream, engine="llamacpp", port=port)])

        def leave() -> float:
            connection = gateway.open()
            wait_until(lambda: gateway.inflight() == 1, what="the reservation")
            connection.close()
            left = time.monotonic()
            wait_until(lambda: gateway.inflight() == 0, what="the release")
            return time.monotonic() - left

        # The connection would be given up after a second.
        assert quickest(leave, enough=0.7) < 0.7


def test_a_client_that_leaves_is_no_fault_of_the_backend(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(permits=held())
    for k in range(5):
        connection = gateway.open()
        wait_until(lambda n=k: len(upstream.received) > n, what="the request")
        connection.close()
    gateway.settle()
    assert len(gateway.completions(5)) == 5
    assert gateway.metric("tokenweir_backend_ejected") == 0
