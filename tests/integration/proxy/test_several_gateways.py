"""Several gateways before the same backends: who waits at one is not starved by what goes through another."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import PATIENCE, wait_until
from tests.integration.upstream import Answer, Upstream, held

Start = Callable[..., Gateway]
PLACES = 2
CLIENTS = 6 * PLACES
HEARD_S = 0.6
"""Some leases of a gateway, and looks of the other at them."""


class Pair:
    """Two gateways; the first has six times as many clients as the backend has places, all the time. The test
    says when a place is released, always by a request of the first."""

    def __init__(self, start_gateway: Start, upstream: Upstream, order: str) -> None:
        place = backend(upstream, concurrency=PLACES)
        self.upstream = upstream
        self.permits = held()
        upstream.answer = Answer(permits=self.permits)
        self.flooded = start_gateway([place], workers=1, gateway_id="gw-1")
        self.other = start_gateway([place], name="other", workers=1, gateway_id="gw-2")
        self.other.publish(place, queue={"order": order, "max_wait_ms": 120_000})
        self.flooded.wait_for("snapshot", self.other.sequence)
        self._users: list[str] = []

    def load(self, stop: threading.Event) -> None:
        """One of the clients."""
        while not stop.is_set():
            with contextlib.suppress(httpx.TransportError):
                self.flooded.post(user="flood")

    def users(self) -> list[str]:
        """Whose requests have reached the backend, in order."""
        for received in self.upstream.received[len(self._users) :]:
            self._users.append(received.json["user"])
        return self._users

    def release(self) -> None:
        """A request of the flood ends; somebody gets its place."""
        before, end = len(self.users()), time.monotonic() + PATIENCE
        while len(self.users()) == before:
            assert time.monotonic() < end, "nobody got a place"
            self.permits.release()
            # Both gateways may have filled one place at the same moment: then the next is the one to fill.
            with contextlib.suppress(AssertionError):
                wait_until(lambda: len(self.users()) > before, 2, "the next request at the backend")
        # Its client comes again, and stands at the end of the queue.
        wait_until(lambda: self.flooded.metric("tokenweir_queue_depth") >= 3 * PLACES, what="a queue")

    def warm_up(self) -> None:
        """Places are released until both gateways know how fast the order moves on."""
        for _ in range(4):
            self.release()
            time.sleep(0.1)

    def overtaken_by(self, most: int) -> int:
        """How many requests reach the backend before one that comes to the other gateway: so many at most are
        let through; then `most` + 1."""
        time.sleep(HEARD_S)
        name = f"single-{len(self.users())}"
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(self.other.post, user=name)
            wait_until(lambda: self.other.metric("tokenweir_queue_depth") == 1, what="the single request")
            time.sleep(HEARD_S)
            began = len(self.users())
            for _ in range(most + 1):
                self.release()
                if name in self.users():
                    break
                time.sleep(HEARD_S)
            if name not in self.users():
                return most + 1
            count = self.users()[began:].index(name)
            while not answer.done():
                self.release()
            assert answer.result().status_code == 200
        return count


@pytest.fixture
def pair(request: pytest.FixtureRequest, start_gateway: Start, upstream: Upstream) -> Iterator[Pair]:
    """They serve in the order that the test names."""
    pair = Pair(start_gateway, upstream, request.param)
    stop = threading.Event()
    with ThreadPoolExecutor(CLIENTS) as pool:
        try:
            for _ in range(CLIENTS):
                pool.submit(pair.load, stop)
            wait_until(
                lambda: pair.flooded.metric("tokenweir_queue_depth") >= CLIENTS - 2 * PLACES, what="a queue"
            )
            pair.warm_up()
            yield pair
        finally:
            stop.set()
            upstream.answer = Answer()
            pair.permits.release(1000)


@pytest.mark.parametrize("pair", ["fair"], indirect=True)
def test_single_requests_do_not_wait_for_another_gateway_s_flood(pair: Pair) -> None:
    # By their tags they stand before all but the first of it. Who hears of a place in time is chance, so on a
    # busy machine some more may pass; without one order none of the places would be theirs.
    assert max(pair.overtaken_by(2 * CLIENTS) for _ in range(2)) <= 2 * CLIENTS


@pytest.mark.parametrize("pair", ["fifo"], indirect=True)
def test_who_comes_to_an_idle_gateway_stands_behind_those_who_wait_at_another(pair: Pair) -> None:
    # A lease that is late holds nobody back, so one of them may be lucky on a busy machine.
    assert 4 <= max(pair.overtaken_by(2 * CLIENTS) for _ in range(3)) <= 2 * CLIENTS
