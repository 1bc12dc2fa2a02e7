"""Passive health on the request's path: what fails leaves, and comes back by a probe."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream, event, held

Start = Callable[..., Gateway]
Pair = tuple[Gateway, Upstream, Upstream]
UNBOUND = {"sessions": {"affinity": False}}
"""Each request is placed by itself."""


@pytest.fixture
def quick(start_gateway: Start, start_upstream: Callable[..., Upstream]) -> Pair:
    """A pair that is ejected for two seconds at first."""
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    gateway = start_gateway(
        [backend(first), backend(second)],
        {"health": {"eject_ms": 2000, "probe_ms": 500, "failures": 3}},
        policy="round_robin",
    )
    return gateway, first, second


@pytest.mark.parametrize(
    "answer", [Answer(status=500), Answer(break_after=0), Answer(status=503)], ids=["500", "break", "503"]
)
def test_a_backend_that_fails_in_a_row_leaves_and_comes_back(quick: Pair, answer: Answer) -> None:
    gateway, first, _ = quick

    def out() -> bool:
        return gateway.metric("tokenweir_backend_ejected", backend="gpu-a") == 1

    first.answer = answer
    while not out():
        gateway.post()
    seen = len(first.received)
    assert seen >= 3
    assert gateway.post().headers["x-tokenweir-backend"] == "gpu-b"
    assert len(first.received) == seen
    first.answer = Answer()

    def back() -> bool:
        assert gateway.post().status_code == 200
        return not out()

    wait_until(back, what="its return")
    assert first.received[seen:]


@pytest.mark.parametrize("status", [400, 404, 422, 429])
def test_client_errors_never_eject(quick: Pair, status: int) -> None:
    gateway, first, second = quick
    first.answer = second.answer = Answer(status=status)
    for _ in range(8):
        gateway.post()
    assert gateway.metric("tokenweir_backend_ejected") == 0


@pytest.mark.parametrize("status", [302, 401, 403, 404])
def test_a_backend_that_refuses_fast_does_not_attract_traffic(
    start_gateway: Start, start_upstream: Callable[..., Upstream], status: int
) -> None:
    upstreams = [start_upstream(name) for name in ("gpu-a", "gpu-b", "gpu-c")]
    bad, *good = upstreams
    gateway = start_gateway([backend(upstream) for upstream in upstreams], UNBOUND, workers=1)
    bad.answer = Answer(status=status)
    for upstream in good:
        upstream.answer = Answer(delay=0.05)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: gateway.post(), range(120)))
    assert 0 < len(bad.received) < 40, "no more than its fair share"
    assert gateway.metric("tokenweir_backend_ejected") == 0


@pytest.mark.parametrize("stream", [False, True])
def test_a_backend_that_fails_fast_in_answers_of_200_does_not_attract_traffic(
    start_gateway: Start, start_upstream: Callable[..., Upstream], stream: bool
) -> None:
    upstreams = [start_upstream(name) for name in ("gpu-a", "gpu-b", "gpu-c")]
    bad, *good = upstreams
    gateway = start_gateway([backend(upstream) for upstream in upstreams], UNBOUND, workers=1)
    error = b'{"error":{"message":"no","code":500}}'
    bad.answer = Answer(events=[b"data: " + error + b"\n\n"]) if stream else Answer(body=error)
    for upstream in good:
        upstream.answer = Answer(delay=0.05)
    with ThreadPoolExecutor(6) as pool:
        list(pool.map(lambda _: gateway.post(stream=stream), range(120)))
    assert 0 < len(bad.received) < 40, "no more than its fair share"
    records = gateway.completions(120)
    assert {record["outcome"] for record in records if record["backend"] == "gpu-a"} == {"upstream_error"}
    assert {record["outcome"] for record in records if record["backend"] != "gpu-a"} == {"ok"}
    assert gateway.metric("tokenweir_backend_ejected") == 0


def test_a_frozen_engine_with_a_flowing_stream_is_ejected(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    frozen, other = start_upstream("gpu-a"), start_upstream("gpu-b")
    gateway = start_gateway(
        [backend(frozen), backend(other)], {"health": {"hang_ms": 2000}}, policy="round_robin", workers=1
    )
    frozen.answer = other.answer = Answer(tokens=50, break_after=3, broken_by="silence", gap=0.02)
    begin = time.monotonic()
    held = [gateway.open(stream=True), gateway.open(stream=True)]
    wait_until(lambda: frozen.received and other.received, what="both streams")
    other.answer = Answer()

    def ejected() -> bool:
        # the sidecar goes on telling that the counters stand still
        gateway.publish(
            backend(frozen, progress_age_ms=5000.0), backend(other, progress_age_ms=0.0), policy="round_robin"
        )
        return gateway.metric("tokenweir_backend_ejected", backend="gpu-a") == 1

    wait_until(ejected, what="the ejection")
    assert 2 < time.monotonic() - begin < 10
    assert gateway.metric("tokenweir_backend_ejected", backend="gpu-b") == 0
    assert all(gateway.post().headers["x-tokenweir-backend"] == "gpu-b" for _ in range(3))
    for connection in held:
        connection.close()


def test_where_only_late_backends_are_left_they_are_tried_one_request_at_a_time(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    well, busy = start_upstream("gpu-a"), start_upstream("gpu-b")
    late = {"state": "down", "late": True, "scrape_failures": 2}
    gateway = start_gateway([backend(well), backend(busy, **late)], workers=1)
    assert {gateway.post().headers["x-tokenweir-backend"] for _ in range(4)} == {"gpu-a"}
    gateway.publish(backend(well, state="down", refused=True), backend(busy, **late))
    assert gateway.get("/readyz").status_code == 200
    permits = held()
    busy.answer = Answer(permits=permits)
    probe = gateway.open()
    wait_until(lambda: busy.received, what="the probe")
    assert gateway.post().status_code == 503
    permits.release(100)
    answer = probe.getresponse()
    assert answer.status == 200
    assert answer.read(), "a byte of its body is what clears it"
    assert [gateway.post().status_code for _ in range(4)] == [200] * 4
    assert not gateway.metric("tokenweir_backend_ejected", backend="gpu-b")


def test_a_client_that_stops_reading_ejects_nobody(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"health": {"hang_ms": 1000}}, workers=1)
    upstream.answer = Answer(events=[event("x" * 60_000) for _ in range(400)])
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.connect(("127.0.0.1", gateway.port))
        body = b'{"model":"llama","stream":true,"messages":[]}'
        client.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s"
            % (len(body), body)
        )
        wait_until(lambda: upstream.received, what="the request")
        end = time.monotonic() + 2.5
        while time.monotonic() < end:
            assert gateway.metric("tokenweir_backend_ejected") == 0
            time.sleep(0.1)
        assert gateway.inflight() == 1
        assert upstream.received[0].closed_at is None
