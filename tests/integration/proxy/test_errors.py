"""Errors of the gateway's own: OpenAI's shape, the right status, what is wrong and where."""

from __future__ import annotations

import socket
from collections.abc import Callable

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.upstream import Answer, Upstream


@pytest.mark.parametrize(
    ("body", "code", "part"),
    [
        (b'{"model": "llama", "messages": [}', "invalid_json", "byte offset 32"),
        (b"", "invalid_json", "empty"),
        (b"[]", "invalid_json", "expected '{'"),
        (b'{"model": 7}', "invalid_type", "'model' must be a string"),
        (b'{"model": "llama", "stream": "yes"}', "invalid_type", "'stream'"),
        (b'{"model": "llama", "n": 0}', "invalid_value", "'n'"),
    ],
)
def test_a_malformed_body_is_told_what_is_wrong(
    gateway: Gateway, upstream: Upstream, body: bytes, code: str, part: str
) -> None:
    answer = gateway.post(body=body)
    assert answer.status_code == 400
    assert answer.headers["content-type"] == "application/json"
    error = answer.json()["error"]
    assert (error["type"], error["code"]) == ("invalid_request_error", code)
    assert part in error["message"]
    assert not upstream.received


def test_a_compressed_body_is_refused_by_name(gateway: Gateway) -> None:
    answer = gateway.post(body=b"\x1f\x8b", headers={"Content-Encoding": "gzip"})
    assert answer.status_code == 415
    assert "gzip" in answer.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/admin", "/v1", "/"])
def test_a_path_outside_the_api_is_not_found(gateway: Gateway, path: str) -> None:
    answer = gateway.get(path)
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


def test_a_body_over_the_limit_is_413(start_gateway: Callable[..., Gateway], upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], limits={"body_max": "64KiB", "body_memory": "32KiB"})
    answer = gateway.post(body=b'{"model":"llama","messages":"' + b"x" * 70_000 + b'"}')
    assert answer.status_code == 413
    assert answer.json()["error"]["code"] == "request_too_large"
    assert gateway.access_log()[-1]["status"] == 413


def exchange(gateway: Gateway, request: bytes) -> bytes:
    with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as connection:
        connection.sendall(request)
        connection.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "path",
    [
        b"/metrics/../v1/x",
        b"/v1/%2e%2e/v1/x",
        b"/v1/a/..%2f..%2fv1/x",
        b"//v1/x",
        b"/v1//chat/completions",
        b"/v1//models",
        b"/v1/x/../models",
        b"/v1/models/./llama",
        b"/v1/x/../chat/completions",
        b"/%761/x",
        b"http://host/v1/../v1/x",
    ],
)
def test_a_path_that_the_engine_may_read_as_another_is_refused(
    gateway: Gateway, upstream: Upstream, path: bytes
) -> None:
    answer = exchange(gateway, b"GET " + path + b" HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert b'"code":"invalid_path"' in answer
    assert not upstream.received


def test_a_known_path_is_known_with_a_query_and_with_escaped_letters(
    gateway: Gateway, upstream: Upstream
) -> None:
    assert gateway.post("/v1/chat/completions?api-version=1").status_code == 200
    assert gateway.post("/v1/ch%61t/completions").status_code == 200
    assert {record["kind"] for record in gateway.completions(2)} == {"chat"}


def test_what_is_not_http_is_told_in_json_too(gateway: Gateway) -> None:
    answer = exchange(gateway, b"GET /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'{"error":{"message":"The request is not valid HTTP, or a line of its headers' in answer


def test_another_version_of_http_is_told_by_its_name(gateway: Gateway) -> None:
    answer = exchange(gateway, b"GET /v1/models HTTP/2.0\r\nHost: a\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 505 ")
    assert b'"code":"http_version_not_supported"' in answer


def test_a_refused_request_is_told_nothing_of_the_one_before_it(gateway: Gateway) -> None:
    body = b'{"model":"llama","messages":[{"role":"user","content":"x"}]}'
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(body)
    malformed = b"GET /v1/models HTTP/1.1\r\nHost: a\r\nContent-Length: x\r\n\r\n"
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=5) as connection:
            connection.sendall(head + body + malformed)
            answers = b"".join(iter(lambda to=connection: to.recv(65536), b""))
        served, refused = answers.split(b"HTTP/1.1 400 ")
        assert b"X-Tokenweir-Backend: " in served
        assert b"X-Tokenweir-" not in refused


def test_a_header_that_is_too_long_is_told_by_its_limit(gateway: Gateway) -> None:
    long = b"X-Long: " + b"a" * 17_000
    answer = exchange(gateway, b"GET /v1/models HTTP/1.1\r\nHost: a\r\n" + long + b"\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"a line of its headers is longer than 16 KiB" in answer


def test_a_body_in_an_unknown_transfer_encoding_is_the_client_s_fault(gateway: Gateway) -> None:
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n"
    answer = exchange(gateway, head)
    assert answer.startswith(b"HTTP/1.1 501 ")
    assert b'"code":"not_implemented"' in answer


def test_a_web_socket_is_refused_by_name(gateway: Gateway, upstream: Upstream) -> None:
    answer = gateway.get("/v1/realtime?model=llama", {"Connection": "Upgrade", "Upgrade": "WebSocket"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_implemented")
    assert "WebSocket" in answer.json()["error"]["message"]
    assert not upstream.received
    assert gateway.post(headers={"Upgrade": "h2c"}).status_code == 200
    assert "upgrade" not in upstream.received[0].headers


def test_the_engine_s_own_errors_pass_unchanged(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(status=400, body=b'{"object":"error","message":"too long"}')
    answer = gateway.post()
    assert answer.status_code == 400
    assert answer.content == b'{"object":"error","message":"too long"}'


def test_an_engine_that_cannot_be_reached_is_503_with_retry_after(
    gateway: Gateway, upstream: Upstream
) -> None:
    upstream.crash()
    answer = gateway.post()
    assert answer.status_code == 503
    assert answer.json()["error"]["code"] == "no_capacity"
    assert 1 <= int(answer.headers["retry-after"]) <= 60


@pytest.mark.parametrize("how", ["close", "reset"])
def test_an_engine_that_breaks_before_it_answers_is_502(
    gateway: Gateway, upstream: Upstream, how: str
) -> None:
    upstream.answer = Answer(break_after=0, broken_by=how)  # type: ignore[arg-type]
    answer = gateway.post()
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "upstream_broke"
    assert len(upstream.received) == 1
    assert gateway.completions()[0]["outcome"] == "upstream_broke"
