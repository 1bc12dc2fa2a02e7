"""`103 Early Hints` while a request waits: what is sent, and that every client is served as before."""

from __future__ import annotations

import json
import re
import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream, held

Start = Callable[..., Gateway]
ASKS = {"X-Accept-Early-Hints": "1"}
PLAIN = "ttt"
MESSAGES: list[Any] = [{"role": "user", "content": "hi"}]


def request_bytes(version: str = "1.1", **headers: str) -> bytes:
    body = json.dumps({"model": "llama", "messages": MESSAGES})
    lines = [f"POST /v1/chat/completions HTTP/{version}", "Host: gateway", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join([*lines, f"Content-Length: {len(body)}"]) + "\r\n\r\n" + body).encode()


class Client:
    """A connection on which every byte is seen."""

    def __init__(self, gateway: Gateway, raw: socket.socket | None = None) -> None:
        self.socket = raw or socket.create_connection(("127.0.0.1", gateway.port), timeout=30)
        self.file = self.socket.makefile("rb")

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def head(self) -> tuple[int, dict[str, str]]:
        """The next head: an interim answer's or the answer's."""
        status = int(self.file.readline().split()[1])
        headers = {}
        while (line := self.file.readline()) not in {b"\r\n", b""}:
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers

    def answer(self) -> tuple[list[dict[str, str]], int, bytes]:
        """(interim answers, status, body)."""
        hints = []
        status, headers = self.head()
        while status == 103:
            hints.append(headers)
            status, headers = self.head()
        return hints, status, self.file.read(int(headers["content-length"]))

    def close(self) -> None:
        self.file.close()
        self.socket.close()


def test_who_asks_is_told_position_and_wait_before_its_answer(narrow: Gateway, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    first = narrow.open()
    wait_until(lambda: narrow.inflight() == 1, what="the first request")
    client = Client(narrow)
    client.send(request_bytes(X_Accept_Early_Hints="1"))
    status, hint = client.head()
    assert status == 103
    assert hint["tokenweir-queue-position"] == "1"
    assert re.fullmatch(r"\d+\.\d", hint["tokenweir-estimated-wait"])
    permits.release(2)
    hints, status, body = client.answer()
    assert (status, hints) == (200, [])
    assert json.loads(body)["choices"][0]["message"]["content"] == PLAIN
    assert first.getresponse().status == 200
    client.send(request_bytes())
    permits.release()
    assert client.answer()[:2] == ([], 200), "the connection serves on"
    client.close()


def test_low_priority_is_told_a_range(narrow: Gateway, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    connections = [narrow.open()]
    wait_until(lambda: narrow.inflight() == 1, what="the first request")
    connections += [narrow.open(headers={"X-Priority": "high"}) for _ in range(3)]
    wait_until(lambda: narrow.metric("tokenweir_queue_depth") == 3, what="three waiters")
    client = Client(narrow)
    client.send(request_bytes(X_Accept_Early_Hints="1", X_Priority="low"))
    status, hint = client.head()
    assert status == 103
    assert re.fullmatch(r"\d+\.\d-\d+\.\d", hint["tokenweir-estimated-wait"])
    permits.release(5)
    assert client.answer()[1] == 200
    assert [connection.getresponse().status for connection in connections] == [200] * 4
    client.close()


def test_it_is_told_again_when_the_position_changes_and_four_times_at_most(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway()
    gateway.publish(backend(upstream, concurrency=1), queue={"order": "fifo"})
    permits = held()
    upstream.answer = Answer(permits=permits)
    connections = [gateway.open()]
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    connections += [gateway.open() for _ in range(40)]
    wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 40, what="forty waiters")
    time.sleep(1)  # workers with many waiters tell the others only now and then where these stand
    client = Client(gateway)
    client.send(request_bytes(X_Accept_Early_Hints="1"))
    positions = []
    for serve in (21, 10, 5, 3):
        status, hint = client.head()
        assert status == 103
        positions.append(int(hint["tokenweir-queue-position"]))
        time.sleep(1.1)
        permits.release(serve)
    time.sleep(1.5)
    permits.release(41)
    hints, status, _ = client.answer()
    assert (hints, status) == ([], 200)
    assert positions == [41, 20, 10, 5]
    for connection in connections:
        assert connection.getresponse().status == 200
    client.close()


@pytest.mark.parametrize(
    "ask",
    [
        request_bytes(),
        request_bytes(X_Accept_Early_Hints="0"),
        request_bytes("1.0", X_Accept_Early_Hints="1", Connection="keep-alive"),
    ],
    ids=["unasked", "declined", "HTTP/1.0"],
)
def test_nobody_else_is_told(busy: Gateway, ask: bytes) -> None:
    client = Client(busy)
    client.send(ask)
    hints, status, _ = client.answer()
    assert (hints, status) == ([], 200)
    client.close()


def test_it_can_be_turned_off(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway()
    gateway.publish(backend(upstream, concurrency=1), queue={"early_hints": 0})
    permits = held()
    upstream.answer = Answer(permits=permits)
    first = gateway.open()
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    client = Client(gateway)
    client.send(request_bytes(X_Accept_Early_Hints="1"))
    wait_until(lambda: gateway.metric("tokenweir_queue_depth") == 1, what="a waiter")
    permits.release(2)
    assert client.answer()[:2] == ([], 200)
    assert first.getresponse().status == 200
    client.close()


def test_over_tls_too(start_gateway: Start, upstream: Upstream, authority: Path) -> None:
    gateway = start_gateway(
        [backend(upstream, concurrency=1)],
        listen={
            "tls": {"certificate": str(authority / "engine-a.pem"), "key": str(authority / "engine-a.key")}
        },
    )
    permits = held()
    upstream.answer = Answer(permits=permits)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE

    def connect() -> Client:
        raw = socket.create_connection(("127.0.0.1", gateway.port), timeout=30)
        return Client(gateway, context.wrap_socket(raw))

    first, client = connect(), connect()
    first.send(request_bytes())
    wait_until(lambda: gateway.inflight() == 1, what="the first request")
    client.send(request_bytes(X_Accept_Early_Hints="1"))
    assert client.head()[0] == 103
    permits.release(2)
    assert client.answer()[:2] == ([], 200)
    assert first.answer()[1] == 200
    first.close()
    client.close()


def test_a_client_that_leaves_after_a_hint_gives_up_its_place(narrow: Gateway, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    first = narrow.open()
    wait_until(lambda: narrow.inflight() == 1, what="the first request")
    client = Client(narrow)
    client.send(request_bytes(X_Accept_Early_Hints="1"))
    assert client.head()[0] == 103
    client.close()
    wait_until(lambda: narrow.metric("tokenweir_queue_depth") == 0, what="the empty queue")
    permits.release()
    assert first.getresponse().status == 200


# Clients that bear a 103: both answers of one connection are theirs.


# Clients that take a 103 for the answer: they do not ask, and nothing is another for them.
