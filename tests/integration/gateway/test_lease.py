"""What a gateway tells of itself in Redis, and what it takes from others."""

from __future__ import annotations

import concurrent.futures
import json
import time
from collections.abc import Callable

from tests.integration.gateway.gateway import Gateway
from tests.integration.servers import RedisServer, quickest, wait_until, well_within_a_minute
from tokenweir.contract.records import Lease

StartGateway = Callable[..., Gateway]


def lease_of(server: RedisServer, gateway: str = "gw-1") -> Lease:
    """The lease as a sidecar reads it: against the contract, strictly."""
    return Lease.model_validate_json(server.client().get(f"tw:gateway:{gateway}") or "", strict=True)


def foreign_lease(**changes: object) -> str:
    """Another gateway's lease, as JSON."""
    lease = {"schema": 1, "id": "gw-9", "time_ms": 1, "sequence": 1, "backends": {"gpu-a": {"n": 2}}}
    return json.dumps({**lease, **changes})


def put_lease(server: RedisServer, text: str, gateway: str = "gw-9") -> None:
    """Writes another gateway's lease, for longer than a gateway's own last."""
    server.client().set(f"tw:gateway:{gateway}", text, px=60_000)
    server.client().zadd("tw:gateways", {gateway: time.time() * 1000})


def test_the_lease_tells_what_is_in_flight_with_its_buckets(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        held = [pool.submit(gateway.get, "hold", ms=60_000, stream=1) for _ in range(5)]
        wait_until(lambda: lease_of(redis_server).backends.get("gpu-a"))
        wait_until(lambda: lease_of(redis_server).backends["gpu-a"].flowing == 5)
        load = lease_of(redis_server).backends["gpu-a"]
        assert load.n == 5
        assert load.held >= 500
        assert sum(bucket[0] for bucket in load.buckets.values()) == 5
        gateway.let_go()
        for future in held:
            future.result()
    wait_until(lambda: lease_of(redis_server).backends == {}, what="an empty lease")


def test_the_lease_is_renewed_ten_times_a_second_and_expires_by_itself(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    def ten_renewals() -> float:
        sequences: set[int] = set()

        def seen() -> bool:
            sequences.add(lease_of(redis_server).sequence)
            return len(sequences) > 10

        began = time.monotonic()
        wait_until(seen, what="ten renewals")
        return time.monotonic() - began

    assert quickest(ten_renewals, enough=2) < 2
    assert 0 < redis_server.client().pttl("tw:gateway:gw-1") <= 3000
    gateway.nginx.stop()
    wait_until(lambda: not redis_server.client().exists("tw:gateway:gw-1"))


def test_arrivals_of_a_model_never_fall(gateway: Gateway, redis_server: RedisServer) -> None:
    for _ in range(6):
        gateway.get("hold", ms=10)
    wait_until(lambda: lease_of(redis_server).arrivals["llama"] == 6)
    gateway.nginx.reload()
    wait_until(lambda: len(gateway.nginx.workers()) == 2)
    gateway.get("hold", ms=10)
    wait_until(lambda: lease_of(redis_server).arrivals["llama"] == 7)


def test_the_queue_is_told(gateway: Gateway, redis_server: RedisServer) -> None:
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(gateway.get, "wait", ms=60_000)
        wait_until(lambda: lease_of(redis_server).queue.get("llama"))
        wait_until(lambda: lease_of(redis_server).queue["llama"].oldest_ms > 500)
        assert lease_of(redis_server).queue["llama"].depth == 1
        gateway.let_go()
        waiting.result()
    wait_until(lambda: lease_of(redis_server).queue == {})


def test_another_gateways_use_of_a_key_is_known(
    gateway: Gateway, start_gateway: StartGateway, redis_server: RedisServer
) -> None:
    other = start_gateway("gw-2")
    well_within_a_minute()
    minute = int(time.time() // 60)
    gateway.get("use", key="team-1", minute=minute)
    wanted = {"requests": 3, "tokens": 500}
    wait_until(lambda: other.json("keys", key="team-1", minute=minute) == wanted)
    assert gateway.json("keys", key="team-1", minute=minute) == {"requests": 0, "tokens": 0}


def test_the_use_of_a_minute_is_whole_while_gateways_go_on_to_the_next_one_by_one(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    def use(minute: int, requests: int, before: int) -> dict[str, int]:
        tokens = {"tokens": 10 * requests, "tokens_before": 10 * before}
        return {"minute": minute, "requests": requests, "requests_before": before, **tokens}

    def put(name: str, **figures: int) -> None:
        put_lease(redis_server, foreign_lease(id=name, keys={"team-1": use(**figures)}), name)

    def known(minute: int) -> tuple[float, float]:
        figures = gateway.json("keys", key="team-1", minute=minute)
        return figures["requests"], figures["tokens"]

    put("gw-8", minute=100, requests=30, before=5)
    put("gw-9", minute=100, requests=20, before=0)
    wait_until(lambda: known(100) == (50, 500), what="the use of both")
    put("gw-8", minute=101, requests=1, before=31)
    wait_until(lambda: known(101) == (1, 10), what="the next minute of the first")
    wait_until(lambda: known(100) == (51, 510), what="the minute before")
    put("gw-9", minute=101, requests=2, before=20)
    wait_until(lambda: known(101) == (3, 30), what="the next minute of both")
    wait_until(lambda: known(100) == (51, 510), what="the minute before")


def test_a_bad_lease_of_another_gateway_is_refused_and_counted(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    put_lease(redis_server, foreign_lease())
    wait_until(lambda: gateway.json("view")["gpu-a"]["n"] == 2)
    series = 'tokenweir_documents_refused_total{document="lease",reason="value"}'
    bad = ("{", foreign_lease(backends={"gpu-a": {"n": -1}}), foreign_lease(schema=2))
    for number, text in enumerate(bad, 1):
        put_lease(redis_server, text)
        wait_until(lambda n=number: gateway.metrics().get(series) == n)
        wait_until(lambda: gateway.json("view")["gpu-a"]["n"] == 0, what="no load of a refused lease")
    assert gateway.nginx.error_log().count("the lease of gateway gw-9 is refused") == 1


def test_a_lease_with_a_backend_that_this_gateway_does_not_know_counts_for_the_others(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    put_lease(redis_server, foreign_lease(backends={"gpu-z": {"n": 5}, "gpu-b": {"n": 1}}))
    wait_until(lambda: gateway.json("view")["gpu-b"]["n"] == 1)


def test_the_load_of_others_is_forgotten_when_redis_is_away(
    gateway: Gateway, redis_server: RedisServer
) -> None:
    put_lease(redis_server, foreign_lease())
    wait_until(lambda: gateway.json("view")["gpu-a"]["n"] == 2)
    redis_server.stop()
    wait_until(lambda: gateway.json("view")["gpu-a"]["n"] == 0, what="the lease's end")
