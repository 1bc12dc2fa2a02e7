"""HTTP/2 towards clients: what holds over HTTP/1.1 holds here, and no early hint breaks the framing."""

from __future__ import annotations

import json
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import h2.connection
import h2.errors
import h2.events
import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import PATIENCE, quickest, wait_until
from tests.integration.upstream import Answer, Upstream, event, held
from tokenweir.render.nginx import nginx_version, sends_early_hints

Start = Callable[..., Gateway]
CHAT = "/v1/chat/completions"
BODY: dict[str, Any] = {"model": "llama", "messages": [{"role": "user", "content": "hi"}]}


def listening(authority: Path, **tls: Any) -> dict[str, Any]:
    """`listen` with a certificate."""
    files = {"certificate": str(authority / "engine-a.pem"), "key": str(authority / "engine-a.key")}
    return {"listen": {"tls": {**files, **tls}}}


class Connection:
    """One connection and its streams: httpx neither sends on one while it reads, nor resets any, nor lets
    threads share one."""

    def __init__(self, gateway: Gateway, authority: Path) -> None:
        context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
        context.set_alpn_protocols(["h2"])
        raw = socket.create_connection(("127.0.0.1", gateway.port), timeout=30)
        self._socket = context.wrap_socket(raw, server_hostname="127.0.0.1")
        self._state = h2.connection.H2Connection()
        self._state.initiate_connection()
        self.statuses: dict[int, str] = {}
        """By stream, of every head that came."""
        self.heads: dict[int, dict[str, str]] = {}
        self.hints: dict[int, list[dict[str, str]]] = {}
        """By stream, the headers of every 103 that came."""
        self.ended: set[int] = set()
        self.data: dict[int, bytes] = {}
        self._send()

    def _send(self) -> None:
        self._socket.sendall(self._state.data_to_send())

    def ask(self, headers: dict[str, str] | None = None, **members: Any) -> int:
        """Begin a chat; returns its stream."""
        body = json.dumps({**BODY, **members}).encode()
        stream = self.begin(len(body), headers)
        self.send(stream, body, end=True)
        return stream

    def begin(self, size: int, headers: dict[str, str] | None = None) -> int:
        """The head of a chat with a body of that size; returns its stream."""
        stream = self._state.get_next_available_stream_id()
        head = [(":method", "POST"), (":path", CHAT), (":scheme", "https"), (":authority", "gateway")]
        head += [("content-type", "application/json"), ("content-length", str(size))]
        self._state.send_headers(stream, head + list((headers or {}).items()))
        self._send()
        return stream

    def send(self, stream: int, data: bytes, *, end: bool = False) -> None:
        """Some of its body."""
        self._state.send_data(stream, data, end_stream=end)
        self._send()

    def reset(self, stream: int) -> None:
        """Give a stream up; the connection lives on."""
        self._state.reset_stream(stream, h2.errors.ErrorCodes.CANCEL)
        self._send()

    def until(self, wanted: Callable[[], bool], meanwhile: Callable[[], None] | None = None) -> None:
        """Read until something has come; where nothing comes for a while, do something else `meanwhile`."""
        self._socket.settimeout(0.1 if meanwhile else PATIENCE)
        while not wanted():
            try:
                data = self._socket.recv(65536)
            except TimeoutError:
                if meanwhile is None:
                    raise
                meanwhile()
                continue
            assert data, "the connection was closed"
            for came in self._state.receive_data(data):
                match came:
                    case h2.events.ResponseReceived():
                        head = {name.decode(): value.decode() for name, value in came.headers}
                        self.statuses[came.stream_id] = head[":status"]
                        self.heads[came.stream_id] = head
                    case h2.events.InformationalResponseReceived():
                        told = {name.decode(): value.decode() for name, value in came.headers}
                        assert told.pop(":status") == "103"
                        self.hints.setdefault(came.stream_id, []).append(told)
                    case h2.events.DataReceived():
                        self.data[came.stream_id] = self.data.get(came.stream_id, b"") + came.data
                        self._state.acknowledge_received_data(came.flow_controlled_length, came.stream_id)
                    case h2.events.StreamEnded():
                        self.ended.add(came.stream_id)
            self._send()

    def close(self) -> None:
        """End it."""
        self._socket.close()


@pytest.fixture
def connection(secure: Gateway, authority: Path) -> Iterator[Connection]:
    """A connection to it."""
    connection = Connection(secure, authority)
    yield connection
    connection.close()


@pytest.fixture
def secure(start_gateway: Start, upstream: Upstream, authority: Path) -> Gateway:
    """A gateway whose backend takes one request at a time."""
    return start_gateway([backend(upstream, concurrency=1)], **listening(authority))


@pytest.fixture
def client(secure: Gateway, authority: Path) -> Iterator[httpx.Client]:
    """One connection, which speaks HTTP/2."""
    context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    limits = httpx.Limits(max_connections=1)
    with httpx.Client(base_url=secure.url, http2=True, verify=context, limits=limits, timeout=30) as client:
        yield client


def test_a_chat_is_answered_over_http_2(client: httpx.Client, upstream: Upstream) -> None:
    answer = client.post(CHAT, json=BODY)
    assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
    assert answer.headers["x-tokenweir-backend"] == upstream.name
    assert upstream.received[0].json["messages"] == BODY["messages"]
    assert "host" in upstream.received[0].headers


def test_a_body_that_nginx_puts_into_a_file_is_passed_on_whole(
    client: httpx.Client, upstream: Upstream
) -> None:
    text = "long " * 1_200_000
    answer = client.post(CHAT, json={**BODY, "messages": [{"role": "user", "content": text}]})
    assert (answer.http_version, answer.status_code) == ("HTTP/2", 200)
    assert upstream.received[0].json["messages"][0]["content"] == text


def test_requests_without_a_body_need_no_length(client: httpx.Client, upstream: Upstream) -> None:
    assert client.get("/v1/models").status_code == 200
    assert client.get("/v1/files/file-1").status_code == 200
    assert client.delete("/v1/files/file-1").status_code == 200
    assert [received.path for received in upstream.received] == ["/v1/files/file-1"] * 2


def test_a_body_of_unknown_length_is_411(client: httpx.Client, upstream: Upstream) -> None:
    answer = client.post(CHAT, content=iter([json.dumps(BODY).encode()]))
    assert answer.status_code == 411
    assert answer.json()["error"]["code"] == "length_required"
    assert not upstream.received
    assert client.post(CHAT, json=BODY).status_code == 200


def test_each_event_of_a_stream_goes_out_when_it_comes(client: httpx.Client, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(tokens=3, permits=permits)
    permits.release()
    with client.stream("POST", CHAT, json={**BODY, "stream": True}) as answer:
        assert answer.http_version == "HTTP/2"
        pieces = answer.iter_bytes()
        text = b""
        while event("t0") not in text:
            text += next(pieces)
        permits.release(9)
        assert (text + b"".join(pieces)).startswith(event("t0") + event("t1") + event("t2"))


def test_many_requests_of_one_connection_wait_for_room(connection: Connection, secure: Gateway) -> None:
    streams = {connection.ask() for _ in range(20)}
    connection.until(lambda: streams <= connection.ended)
    assert connection.statuses == dict.fromkeys(streams, "200")
    secure.settle()


def test_who_waits_and_asks_gets_103_where_this_nginx_sends_them_and_none_where_it_would_break_the_framing(
    connection: Connection, secure: Gateway, upstream: Upstream
) -> None:
    sends = sends_early_hints(nginx_version())
    permits = held()
    upstream.answer = Answer(permits=permits)
    first = connection.ask()
    wait_until(lambda: secure.inflight() == 1, what="the first request")
    second = connection.ask({"x-accept-early-hints": "1"})
    wait_until(lambda: secure.metric("tokenweir_queue_depth") == 1, what="the second request")
    if sends:
        connection.until(lambda: second in connection.hints)
    time.sleep(0.6)
    permits.release(9)
    connection.until(lambda: {first, second} <= connection.ended)
    third = connection.ask()
    connection.until(lambda: third in connection.ended)
    assert connection.statuses == {first: "200", second: "200", third: "200"}
    assert not any("tokenweir-queue-position" in head for head in connection.heads.values())
    if sends:
        assert set(connection.hints) == {second}
        assert connection.hints[second][0]["tokenweir-queue-position"] == "1"
        assert set(connection.hints[second][0]) <= {"tokenweir-queue-position", "tokenweir-estimated-wait"}
    else:
        assert not connection.hints
    told = len(connection.hints.get(second, []))
    wait_until(lambda: secure.metric("tokenweir_early_hints_total") == told, what="the count of hints")


def test_a_stream_that_is_reset_while_it_waits_gives_up_its_place(
    connection: Connection, secure: Gateway, upstream: Upstream
) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    first = connection.ask()
    wait_until(lambda: secure.inflight() == 1, what="the first request")
    second = connection.ask()
    wait_until(lambda: secure.metric("tokenweir_queue_depth") == 1, what="the second request")
    connection.reset(second)
    wait_until(lambda: secure.metric("tokenweir_queue_depth") == 0, what="the empty queue")
    permits.release(9)
    connection.until(lambda: first in connection.ended)
    assert connection.statuses == {first: "200"}
    secure.settle()
    assert len(upstream.received) == 1


@pytest.mark.parametrize("streams", [False, True], ids=["before its answer", "in the middle of its answer"])
def test_a_stream_that_is_reset_has_its_upstream_closed(
    connection: Connection, secure: Gateway, upstream: Upstream, streams: bool
) -> None:
    upstream.answer = Answer(tokens=1000, gap=0.05) if streams else Answer(permits=held())

    def leave() -> float:
        count = len(upstream.received)
        stream = connection.ask(stream=streams)
        wait_until(lambda: len(upstream.received) > count, what="the request")
        if streams:
            connection.until(lambda: stream in connection.data)
        received = upstream.received[count]
        left = time.monotonic()
        connection.reset(stream)
        wait_until(lambda: received.closed_at, what="the close")
        assert received.closed_at is not None
        return received.closed_at - left

    assert quickest(leave, enough=0.1) < 0.1
    secure.settle()


def test_it_can_be_turned_off(start_gateway: Start, upstream: Upstream, authority: Path) -> None:
    gateway = start_gateway([backend(upstream)], **listening(authority, http2=False))
    context = ssl.create_default_context(cafile=str(authority / "ca.pem"))
    with httpx.Client(base_url=gateway.url, http2=True, verify=context) as client:
        answer = client.post(CHAT, json=BODY)
    assert (answer.http_version, answer.status_code) == ("HTTP/1.1", 200)


def test_curl(secure: Gateway, authority: Path) -> None:
    curl = shutil.which("curl")
    assert curl, "curl is not installed"
    command = [curl, "-s", "--http2", "--cacert", str(authority / "ca.pem"), secure.url + CHAT]
    command += ["-w", " %{http_version} %{http_code}", "-o", "/dev/null", "-d", json.dumps(BODY)]
    command += ["-H", "Content-Type: application/json", "-H", "X-Accept-Early-Hints: 1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=30)
    assert done.stdout.strip() == "2 200"
