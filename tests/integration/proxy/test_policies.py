"""The snapshot's policy serves, another may be watched in the shadow, and a stale snapshot is survived."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from uuid import uuid4

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
    assert {line["shadow"] for line in gateway.access_log(4)} == {"gpu-b"}
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
    assert min(len(first.received), len(second.received)) >= 3


def test_what_decided_is_recorded_where_a_stale_snapshot_changed_it(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], workers=1)
    gateway.post()
    assert gateway.metric("tokenweir_policy", policy="predictive") == 1
    gateway.silence()
    wait_until(lambda: gateway.metric("tokenweir_snapshot_stale") == 1, what="a stale snapshot")
    gateway.post()
    assert [record["policy"] for record in gateway.completions(2)] == ["predictive", "least_inflight"]
    assert gateway.metric("tokenweir_policy", policy="least_inflight") == 1


def test_on_a_stale_snapshot_a_backend_that_was_down_comes_back_by_a_probe(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    first, second, third = (start_upstream(name) for name in ("gpu-a", "gpu-b", "gpu-c"))
    backends = [backend(first), backend(second, state="down"), backend(third, state="draining")]
    second.crash()
    gateway = start_gateway(backends, {"health": {"eject_ms": 500}})
    gateway.silence()
    wait_until(lambda: gateway.metric("tokenweir_snapshot_stale") == 1, what="a stale snapshot")
    first.answer = Answer(delay=0.2)
    connections = [gateway.open() for _ in range(4)]
    assert all(connection.getresponse().status == 200 for connection in connections), "still down"
    second.restart()

    def served_by_the_second() -> bool:
        loaded = [gateway.open({"X-Session-ID": str(uuid4())}) for _ in range(6)]
        assert all(connection.getresponse().status == 200 for connection in loaded)
        return len(second.received) > 1

    wait_until(served_by_the_second, what="the way back")
    assert not third.received
    gateway.publish(backend(first), backend(second, state="down"))
    before = len(second.received)
    assert all(gateway.post().headers["x-tokenweir-backend"] == "gpu-a" for _ in range(4))
    assert len(second.received) == before, "a fresh snapshot is believed"


def test_standby_and_fallback_serve_where_nothing_else_can(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    active, standby, fallback = (start_upstream(name) for name in ("gpu-a", "gpu-b", "gpu-c"))
    gateway = start_gateway(workers=1)

    def server(active_state: str, standby_state: str) -> str:
        gateway.publish(
            backend(active, state=active_state),
            backend(standby, state=standby_state, role="standby"),
            backend(fallback, role="fallback"),
        )
        assert gateway.get("/readyz").status_code == 200
        answer = gateway.post()
        assert answer.status_code == 200
        return answer.headers["x-tokenweir-backend"]

    assert server("ready", "ready") == "gpu-a"
    assert server("down", "ready") == "gpu-b"
    assert server("draining", "down") == "gpu-c"
    active.crash()
    assert server("ready", "ready") == "gpu-b", "nothing was sent, so it goes elsewhere"
    gateway.publish(backend(standby, state="down", role="standby"))
    assert gateway.get("/readyz").status_code == 503


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
