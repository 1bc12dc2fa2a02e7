"""Reservations of requests whose client has left while the engine runs on."""

from __future__ import annotations

import time

from tests.integration.gateway.conftest import Publish
from tests.integration.gateway.gateway import Gateway, backend
from tests.integration.gateway.test_ledger import settle
from tests.integration.servers import wait_until


def test_a_request_left_by_its_client_lingers_until_its_predicted_end(gateway: Gateway) -> None:
    assert gateway.get("hold", ms=50, linger=4000).status_code == 200
    assert gateway.json("own")["gpu-a"]["n"] == 1
    settle(gateway)


def test_a_lingering_request_ends_when_the_engine_is_seen_idle(gateway: Gateway, publish: Publish) -> None:
    gateway.get("hold", ms=50, linger=60_000)
    with publish.again(backends=[backend("gpu-a", load=1, load_age_ms=0), backend("gpu-b")]):
        time.sleep(0.8)
        assert gateway.json("own")["gpu-a"]["n"] == 1
    with publish.again(backends=[backend("gpu-a", load=0, load_age_ms=0), backend("gpu-b")]):
        settle(gateway)


def test_an_idle_reading_from_before_the_client_left_ends_nothing(gateway: Gateway, publish: Publish) -> None:
    gateway.get("hold", ms=50, linger=60_000)
    with publish.again(backends=[backend("gpu-a", load=0, load_age_ms=30_000), backend("gpu-b")]):
        time.sleep(1)
        assert gateway.json("own")["gpu-a"]["n"] == 1


def test_lingering_requests_survive_a_reload(gateway: Gateway) -> None:
    for k in range(4):
        gateway.get("hold", ms=50, linger=6000 if k else 60_000)
    assert gateway.json("own")["gpu-a"]["n"] == 4
    gateway.nginx.reload()
    wait_until(lambda: len(gateway.nginx.workers()) == 2, what="old workers gone")
    wait_until(
        lambda: gateway.json("own")["gpu-a"]["n"] == 1, what="the predicted end of three, and adoption"
    )
    time.sleep(0.5)
    assert gateway.json("own")["gpu-a"]["n"] == 1
