"""A client that leaves: its upstream is closed at once, and what it held is freed."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream

Start = Callable[..., Gateway]


@pytest.mark.parametrize(
    ("answer", "members"),
    [
        (Answer(delay=5), {"stream": False}),
        (Answer(delay=5), {"stream": True}),
        (Answer(tokens=100, gap=0.1), {"stream": True}),
    ],
    ids=["before a plain answer", "before a stream", "in the middle of a stream"],
)
def test_the_upstream_is_closed_within_100_ms(
    gateway: Gateway, upstream: Upstream, answer: Answer, members: dict[str, bool]
) -> None:
    upstream.answer = answer
    connection = gateway.open(**members)
    wait_until(lambda: upstream.received, what="the request")
    time.sleep(0.25)
    left = time.monotonic()
    connection.close()
    wait_until(lambda: upstream.received[0].closed_at, seconds=2, what="the close")
    closed = upstream.received[0].closed_at
    assert closed is not None
    assert closed - left < 0.1
    wait_until(lambda: gateway.inflight() == 0, seconds=2, what="an empty ledger")
    assert gateway.completions()[0]["outcome"] == "client_gone"


def test_an_engine_that_runs_on_keeps_its_reservation_until_it_is_idle(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, engine="llamacpp")])
    upstream.answer = Answer(delay=5)
    connection = gateway.open()
    wait_until(lambda: upstream.received, what="the request")
    connection.close()
    wait_until(lambda: upstream.received[0].closed_at, what="the close")
    time.sleep(0.2)
    assert gateway.inflight() == 1
    time.sleep(0.2)
    gateway.publish(backend(upstream, engine="llamacpp", load=0, load_age_ms=0))
    wait_until(lambda: gateway.inflight() == 0, seconds=2, what="the release")


def test_a_client_that_leaves_is_no_fault_of_the_backend(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(delay=1)
    for _ in range(5):
        connection = gateway.open()
        time.sleep(0.03)
        connection.close()
    wait_until(lambda: gateway.inflight() == 0, what="an empty ledger")
    assert gateway.metric("tokenweir_backend_ejected") == 0
