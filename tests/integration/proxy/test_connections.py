"""A worker that has no connection left."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import time
from collections.abc import Callable

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import PATIENCE, wait_until
from tests.integration.upstream import Answer, Upstream, held

Start = Callable[..., Gateway]


def begun(gateway: Gateway) -> socket.socket:
    """A connection on which a request has begun: nginx cannot take it for an idle one."""
    client = socket.create_connection(("127.0.0.1", gateway.port))
    client.sendall(b"POST /v1/chat/completions HTTP/1.1\r\n")
    return client


def test_a_request_that_finds_no_connection_is_told_so_and_blames_no_backend(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], workers=1, limits={"connections": 64})
    permits = held()
    upstream.answer = Answer(tokens=2, permits=permits)
    refused: http.client.HTTPResponse | None = None
    with contextlib.ExitStack() as stack:
        clients: list[socket.socket] = []
        for k in range(400):
            try:
                connection = gateway.open(stream=True)
                stack.callback(connection.close)
                answer = connection.getresponse()
            except (OSError, http.client.HTTPException):
                # None was left for the client. The next one gets what is given back here, its backend none.
                if clients:
                    clients.pop().close()
                continue
            if answer.status != 200:
                refused = answer
                break
            if k % 2:
                clients.append(stack.enter_context(begun(gateway)))
        assert refused is not None, "no request was refused"
        assert refused.status == 503
        error = json.loads(refused.read())["error"]
        assert error["code"] == "no_capacity"
        assert "limits.connections" in error["message"]
        assert int(refused.headers["retry-after"]) >= 1
    permits.release(10_000)
    wait_until(lambda: gateway.post().status_code == 200, what="an answer")
    gateway.settle()
    assert gateway.metric("tokenweir_ejections_total") == 0
    assert "refused" in {record["outcome"] for record in gateway.completions(2)}


def test_a_worker_without_any_connection_left_keeps_its_lease(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], workers=1, limits={"connections": 64})
    permits = held()
    upstream.answer = Answer(tokens=2, permits=permits)
    stream = gateway.open(stream=True)
    wait_until(lambda: "gpu-a" in gateway.lease()["backends"], what="the stream in the lease")

    def refusals() -> int:
        return gateway.error_log().count("worker_connections are not enough")

    with contextlib.ExitStack() as stack:

        def exhaust() -> None:
            before = refusals()
            while refusals() == before:
                with contextlib.suppress(OSError):
                    stack.enter_context(begun(gateway))

        exhaust()
        since = gateway.lease()["time_ms"]
        until = time.monotonic() + PATIENCE
        while gateway.lease()["time_ms"] < since + 4000:
            # heads that do not end are given up after 10 s
            exhaust()
            assert time.monotonic() < until, "the lease is not renewed"
        assert gateway.lease()["backends"]["gpu-a"]["n"] == 1
    permits.release(10)
    assert stream.getresponse().status == 200
    stream.close()
    gateway.settle()
