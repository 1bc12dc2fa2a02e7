"""The nginx in front that the operations page shows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.documentation import blocks
from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import PATIENCE, Nginx, wait_until
from tests.integration.upstream import Answer, Upstream, held

CHAT = {"model": "llama", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture
def gateway(start_gateway: Callable[..., Gateway], upstream: Upstream) -> Gateway:
    """A gateway that trusts the proxy, before a backend that takes one request at a time."""
    return start_gateway([backend(upstream, concurrency=1)], listen={"trusted_proxies": ["127.0.0.1"]})


@pytest.fixture
def front(gateway: Gateway, tmp_path: Path) -> Iterator[Nginx]:
    """The documented nginx before the gateway, with a client from elsewhere."""
    location = blocks("docs/operations.md", "nginx", "tested")[0]
    location = location.replace("127.0.0.1:8080", f"127.0.0.1:{gateway.port}")
    location = location.replace("$remote_addr", "203.0.113.7")
    nginx = Nginx(tmp_path / "front", f"server {{ listen 127.0.0.1:{{port}}; {location} }}")
    nginx.start()
    yield nginx
    nginx.stop()


def test_streams_pass_as_they_come_and_the_client_is_known(
    gateway: Gateway, front: Nginx, upstream: Upstream
) -> None:
    permits = held()
    upstream.answer = Answer(tokens=3, permits=permits)
    url = f"{front.url}/v1/chat/completions"
    with httpx.stream("POST", url, json={**CHAT, "stream": True}, timeout=PATIENCE) as answer:
        pieces = answer.iter_bytes()
        assert next(pieces).startswith(b"data: "), "while the engine holds back the rest"
        permits.release(10)
        assert b"".join(pieces).endswith(b"data: [DONE]\n\n")
    assert upstream.received[0].headers["x-forwarded-for"] == "203.0.113.7"
    assert gateway.access_log()[0]["client"] == "203.0.113.7"
    gateway.settle()


def test_a_client_that_asks_for_hints_there_gets_its_answer(
    gateway: Gateway, front: Nginx, upstream: Upstream
) -> None:
    permits = held()
    upstream.script = [Answer(permits=permits)]
    first = gateway.open()
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    with httpx.Client(timeout=PATIENCE) as client, ThreadPoolExecutor(1) as pool:
        asking = {"X-Accept-Early-Hints": "1"}
        url = f"{front.url}/v1/chat/completions"
        waits = pool.submit(client.post, url, json=CHAT, headers=asking)
        wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 1, what="the wait")
        permits.release()
        assert waits.result().status_code == 200
        assert client.post(url, json=CHAT, headers=asking).status_code == 200, "on the same connection"
    assert first.getresponse().status == 200
    assert gateway.metric("tokenweir_early_hints_total") == 0
    gateway.settle()
