"""Several gateways before the same backends: who waits at one is not starved by what goes through another."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream

Start = Callable[..., Gateway]
PLACES = 2


class Pair:
    """Two gateways; the first has six times as many clients as the backend has places, all the time."""

    def __init__(self, start_gateway: Start, upstream: Upstream, order: str) -> None:
        place = backend(upstream, concurrency=PLACES)
        self.flooded = start_gateway([place], gateway_id="gw-1")
        self.other = start_gateway([place], name="other", gateway_id="gw-2")
        self.other.publish(place, queue={"order": order})
        self.flooded.wait_for("snapshot", self.other.sequence)

    def load(self, stop: threading.Event) -> None:
        """One of the clients."""
        while not stop.is_set():
            with contextlib.suppress(httpx.TransportError):
                self.flooded.post(user="flood")

    def single(self) -> float:
        """How long a request at the other gateway waited, ms; it is served."""
        answer = self.other.post(headers={"X-Max-Wait": "20"})
        assert answer.status_code == 200
        return float(answer.headers["x-tokenweir-wait-ms"])


@pytest.fixture
def pair(request: pytest.FixtureRequest, start_gateway: Start, upstream: Upstream) -> Iterator[Pair]:
    """They serve in the order that the test names."""
    pair = Pair(start_gateway, upstream, request.param)
    upstream.answer = Answer(delay=0.4)
    stop = threading.Event()
    with ThreadPoolExecutor(6 * PLACES) as pool:
        for _ in range(6 * PLACES):
            pool.submit(pair.load, stop)
        wait_until(lambda: pair.flooded.metric("tokenweir_queue_depth") >= 4 * PLACES, what="a queue")
        time.sleep(1.5)
        yield pair
        stop.set()


@pytest.mark.parametrize("pair", ["fair"], indirect=True)
def test_single_requests_do_not_wait_for_another_gateway_s_flood(pair: Pair) -> None:
    for _ in range(4):
        assert pair.single() < 10_000
        time.sleep(0.5)


@pytest.mark.parametrize("pair", ["fifo"], indirect=True)
def test_who_comes_to_an_idle_gateway_does_not_overtake_who_waits_at_another(pair: Pair) -> None:
    # Twelve clients, two places of 0.4 s: whoever comes waits for some two seconds.
    assert median(pair.single() for _ in range(3)) > 600
