"""Health of the backends is shared by all workers; what hangs is taken out."""

from __future__ import annotations

import concurrent.futures
import time

from tests.integration.gateway.conftest import Publish
from tests.integration.gateway.gateway import Gateway, backend, settings
from tests.integration.servers import RedisServer, wait_until
from tokenweir.contract.records import Lease

EJECTED = 'tokenweir_backend_ejected{backend="gpu-a"}'


def test_failures_in_different_workers_add_up(gateway: Gateway) -> None:
    assert [gateway.json("fail", why="status")["ejected"] for _ in range(3)] == [False, False, True]
    assert gateway.metrics()[EJECTED] == 1
    assert gateway.metrics()['tokenweir_backend_ejected{backend="gpu-b"}'] == 0


def test_an_ejection_outlives_a_reload(gateway: Gateway) -> None:
    for _ in range(3):
        gateway.get("fail")
    gateway.nginx.reload()
    assert gateway.metrics()[EJECTED] == 1


def test_the_settings_of_passive_health_are_followed(gateway: Gateway, redis_server: RedisServer) -> None:
    redis_server.client().set("tw:settings", settings(version=2, health={"failures": 1}))
    gateway.wait_for("settings", 2)
    assert gateway.json("fail")["ejected"]


def test_streams_that_stand_still_eject_their_backend_and_a_byte_brings_it_back(gateway: Gateway) -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        began = time.monotonic()
        pool.submit(gateway.get, "stall", stream=1, ms=6000)
        stalled = pool.submit(gateway.get, "stall", stream=1, ms=6000)
        wait_until(lambda: gateway.metrics()[EJECTED] == 1, what="the ejection")
        assert time.monotonic() - began > 2.9
        wait_until(lambda: "gpu-a stands still" in gateway.nginx.error_log(), what="a line in the log")
        stalled.result()
    assert gateway.metrics()[EJECTED] == 0


def test_a_long_answer_that_does_not_stream_is_no_hang(gateway: Gateway) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        silent = pool.submit(gateway.get, "stall", ms=5000)
        while not silent.done():
            assert gateway.metrics()[EJECTED] == 0
            time.sleep(0.2)


def test_a_silent_stream_is_no_hang_while_the_engines_counters_move(
    gateway: Gateway, publish: Publish
) -> None:
    moving = [backend("gpu-a", progress_age_ms=100), backend("gpu-b")]
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        silent = pool.submit(gateway.get, "stall", stream=1, ms=5000)
        with publish.again(backends=moving):
            while not silent.done():
                assert gateway.metrics()[EJECTED] == 0
                time.sleep(0.2)


def test_the_lease_tells_what_is_out_and_what_single_requests_try(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    def lease() -> Lease:
        return Lease.model_validate_json(redis_server.client().get("tw:gateway:gw-1") or "", strict=True)

    redis_server.client().set("tw:settings", settings(version=2, health={"failures": 1, "eject_ms": 1500}))
    gateway.wait_for("settings", 2)
    assert gateway.json("fail", why="status")["ejected"]
    wait_until(lambda: lease().ejected == {"gpu-a": "status"}, what="the ejection in the lease")
    wait_until(lambda: lease().tried == {"gpu-a": "status"}, what="the trial in the lease")
    assert lease().ejected == {}
    assert gateway.metrics()[EJECTED] == 1
