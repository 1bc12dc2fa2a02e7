"""Bodies that come too slowly hold nothing for long."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.proxy.test_http2 import CHAT, Connection, listening
from tests.integration.servers import PATIENCE, wait_until
from tests.integration.upstream import Upstream

Start = Callable[..., Gateway]


def post(gateway: Gateway, size: int) -> socket.socket:
    """The head of a chat, on a connection of its own."""
    connection = socket.create_connection(("127.0.0.1", gateway.port), timeout=PATIENCE)
    connection.sendall(f"POST {CHAT} HTTP/1.1\r\nHost: a\r\nContent-Length: {size}\r\n\r\n".encode())
    return connection


def chat(size: int) -> bytes:
    """A body of about that size."""
    return json.dumps({"model": "llama", "messages": [{"role": "user", "content": "x" * size}]}).encode()


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed it, without a word."""
    connection.settimeout(0.1)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_those_that_trickle_in_are_given_up_and_told_of(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"body_ms": 1000}})
    waiting = [post(gateway, 100_000) for _ in range(4)]
    end = time.monotonic() + PATIENCE
    while waiting:
        assert time.monotonic() < end, f"{len(waiting)} were not closed"
        for connection in list(waiting):
            if is_closed(connection):
                connection.close()
                waiting.remove(connection)
            else:
                connection.sendall(b" ")
    assert {line["status"] for line in gateway.access_log(4)} == {408}
    gateway.expect(4, "tokenweir_slow_bodies_total")
    gateway.expect(4, "tokenweir_requests_total", outcome="refused", status="4xx")
    assert gateway.post().status_code == 200
    gateway.settle()
    assert len(upstream.received) == 1


def test_one_that_takes_long_but_comes_on_is_served(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"body_ms": 3000}})
    body = chat(80_000)
    with post(gateway, len(body)) as connection:
        for at in range(0, len(body), 2048):
            connection.sendall(body[at : at + 2048])
            time.sleep(0.2)
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert upstream.received[0].body == body


def test_on_http_2_too(start_gateway: Start, upstream: Upstream, authority: Path) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"body_ms": 3000}}, **listening(authority))
    connection = Connection(gateway, authority)
    body = chat(40_000)
    stream = connection.begin(len(body))
    for at in range(0, len(body), 1024):
        connection.send(stream, body[at : at + 1024], end=at + 1024 >= len(body))
        time.sleep(0.2)
    connection.until(lambda: stream in connection.ended)
    assert connection.statuses == {stream: "200"}
    assert upstream.received[0].body == body
    connection.close()


def test_on_http_2_only_the_stream_that_trickles_in_ends_and_it_is_told_why(
    start_gateway: Start, upstream: Upstream, authority: Path
) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"body_ms": 1000}}, **listening(authority))
    connection = Connection(gateway, authority)
    slow = connection.begin(100_000)
    other = connection.ask()
    connection.until(lambda: other in connection.ended)
    connection.until(lambda: slow in connection.ended, lambda: connection.send(slow, b" "))
    assert connection.statuses == {slow: "408", other: "200"}
    error = json.loads(connection.data[slow])["error"]
    assert error["code"] == "request_timeout"
    assert "limits.body_time" in error["message"]
    again = connection.ask()
    connection.until(lambda: again in connection.ended)
    assert connection.statuses[again] == "200"
    connection.close()
    gateway.expect(1, "tokenweir_slow_bodies_total")
    gateway.settle()
    wait_until(lambda: gateway.access_log(3)[-1]["status"] == 200, what="the log")
