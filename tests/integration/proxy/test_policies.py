"""The snapshot's policy serves, another may be watched in the shadow, and a stale snapshot is survived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream, held

Start = Callable[..., Gateway]


def test_the_policy_is_switched_live(start_gateway: Start, start_upstream: Callable[..., Upstream]) -> None:
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    backends = [backend(first, low=1, high=1, memory=0.9), backend(second, low=90, high=90, memory=0.1)]
    gateway = start_gateway(backends, policy="hybrid", workers=1)
    assert {gateway.post().headers["x-tokenweir-backend"] for _ in range(6)} == {"gpu-b"}
    gateway.publish(*backends, policy="round_robin")
    served = Counter(gateway.post().headers["x-tokenweir-backend"] for _ in range(6))
    assert served == {"gpu-a": 3, "gpu-b": 3}


def test_a_shadow_policy_is_recorded_and_serves_nobody(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    gateway = start_gateway(workers=1)
    gateway.publish(
        backend(first, low=1, high=1, memory=0.9),
        backend(second, low=90, high=90, memory=0.1),
        policy="round_robin",
        shadow="hybrid",
    )
    for _ in range(4):
        gateway.post()
    records = gateway.completions(4)
    assert {record["shadow"] for record in records} == {"gpu-b"}
    assert Counter(record["backend"] for record in records) == {"gpu-a": 2, "gpu-b": 2}
    assert {record["policy"] for record in records} == {"round_robin"}
    gateway.expect(4, "tokenweir_shadow_total")


def test_a_stale_snapshot_still_spreads_requests(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    permits = held()
    first.answer = second.answer = Answer(permits=permits)
    gateway = start_gateway(
        [backend(first, low=1, high=1, memory=0.99), backend(second, low=90, high=90, memory=0.1)],
        policy="hybrid",
    )
    gateway.silence()
    wait_until(lambda: gateway.metric("tokenweir_snapshot_stale") == 1, what="a stale snapshot")
    connections = [gateway.open() for _ in range(8)]
    wait_until(lambda: len(first.received) + len(second.received) == 8, what="all requests")
    permits.release(8)
    assert all(connection.getresponse().status == 200 for connection in connections)
    assert len(first.received) == len(second.received) == 4


def test_requests_flow_while_redis_is_away(
    pair: tuple[Gateway, Upstream, Upstream], redis_server: object
) -> None:
    gateway, _, _ = pair
    redis_server.stop()  # type: ignore[attr-defined]
    assert all(gateway.post().status_code == 200 for _ in range(5))


def test_a_backend_that_drains_gets_nothing_new_and_finishes_what_it_has(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    gateway = start_gateway([backend(first)])
    permits = held()
    first.answer = Answer(tokens=8, permits=permits)
    connection = gateway.open(stream=True)
    wait_until(lambda: first.received, what="the stream")
    gateway.publish(backend(first, state="draining"), backend(second))
    assert all(gateway.post().headers["x-tokenweir-backend"] == "gpu-b" for _ in range(4))
    permits.release(100)
    assert connection.getresponse().read() == first.received[0].sent
    assert b"[DONE]" in first.received[0].sent
