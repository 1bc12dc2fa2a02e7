"""While the sidecar is silent the gateway asks silent backends itself whether they are alive."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream, held

Start = Callable[..., Gateway]
FROZEN = Answer(break_after=0, broken_by="silence")


@pytest.fixture
def pair(start_gateway: Start, start_upstream: Callable[..., Upstream]) -> tuple[Gateway, Upstream, Upstream]:
    """A gateway whose sidecar is silent, before gpu-a and gpu-b, which take turns."""
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    gateway = start_gateway(
        [backend(first), backend(second)],
        {"health": {"eject_ms": 500, "eject_max_ms": 500, "probe_ms": 500}},
        policy="round_robin",
        workers=1,
    )
    gateway.silence()
    return gateway, first, second


def ejected(gateway: Gateway, name: str) -> bool:
    return gateway.metric("tokenweir_backend_ejected", backend=name) == 1


def test_a_frozen_engine_without_a_stream_is_taken_out_and_comes_back_when_it_answers(
    pair: tuple[Gateway, Upstream, Upstream],
) -> None:
    gateway, frozen, other = pair
    frozen.answer = frozen.look = FROZEN
    waiting = [gateway.open(), gateway.open()]
    wait_until(lambda: len(frozen.received) and len(other.received), what="both requests")
    wait_until(lambda: ejected(gateway, "gpu-a"), what="the ejection")
    gateway.expect(1, "tokenweir_ejections_total", backend="gpu-a", why="hang")
    assert not ejected(gateway, "gpu-b")
    # It is asked again and again, and no client's request is spent on that.
    seen, asked = len(frozen.received), len(frozen.looks)
    wait_until(lambda: len(frozen.looks) >= asked + 2, what="two more looks")
    assert {gateway.post().headers["x-tokenweir-backend"] for _ in range(4)} == {"gpu-b"}
    assert len(frozen.received) == seen
    frozen.answer = frozen.look = Answer()

    def back() -> bool:
        assert gateway.post().status_code == 200
        return not ejected(gateway, "gpu-a")

    wait_until(back, what="its return")
    assert gateway.metric("tokenweir_liveness_checks_total", result="unanswered") >= 3
    for connection in waiting:
        connection.close()


def test_an_engine_that_computes_for_long_answers_and_stays(pair: tuple[Gateway, Upstream, Upstream]) -> None:
    gateway, busy, other = pair
    permits = held()

    busy.answer = other.answer = Answer(permits=permits)
    waiting = [gateway.open(), gateway.open(stream=True, max_tokens=3)]
    wait_until(lambda: len(busy.looks) >= 3, what="three looks")
    assert not ejected(gateway, "gpu-a")
    permits.release(100)
    assert [connection.getresponse().status for connection in waiting] == [200, 200]
    assert gateway.metric("tokenweir_ejections_total") == 0


def test_it_is_asked_as_requests_are_one_look_at_a_time(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    frozen = start_upstream("gpu-a")
    gateway = start_gateway([backend(frozen, host_header="engine.test:8000", wants_key="gpu-a")])
    gateway.know_keys({"gpu-a": "sk-engine"})
    gateway.silence()
    frozen.answer = frozen.look = FROZEN
    waiting = [gateway.open() for _ in range(4)]
    wait_until(lambda: len(frozen.looks) >= 3, what="three looks")
    for look in frozen.looks:
        assert look.headers["host"] == "engine.test:8000"
        assert look.headers["authorization"] == "Bearer sk-engine"
        assert "x-tokenweir-backend" not in look.headers
    # Each look but the last was given up, and its connection closed, before the next began.
    wait_until(lambda: all(look.closed_at for look in frozen.looks[:-1]), what="their ends")
    for connection in waiting:
        connection.close()


def test_over_tls_no_key_is_told(
    start_gateway: Start, start_upstream: Callable[..., Upstream], authority: Path
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority / "engine-a.pem", authority / "engine-a.key")
    engine = start_upstream("gpu-a", context=context)
    gateway = start_gateway(
        [backend(engine, tls=True, sni="engine-a.test", wants_key="gpu-a")],
        backends=[{"url": "https://engine-a.test", "tls": {"ca": str(authority / "ca.pem")}}],
    )
    gateway.know_keys({"gpu-a": "sk-engine"})
    gateway.silence()
    permits = held()

    engine.answer, engine.look = Answer(permits=permits), Answer(status=401)
    waiting = gateway.open()
    wait_until(lambda: len(engine.looks) >= 2, what="two looks")
    assert all("authorization" not in look.headers for look in engine.looks)
    assert not ejected(gateway, "gpu-a")
    permits.release(10)
    assert waiting.getresponse().status == 200
