"""Signals and deaths: streams outlive a reload, a quit waits for them, a dead worker leaves nothing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import replace_workers, wait_until
from tests.integration.upstream import Answer, Upstream, held
from tokenweir.render import Paths

Start = Callable[..., Gateway]


def listens(gateway: Gateway) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", gateway.port)):
        return True
    return False


def test_a_stream_outlives_a_reload_and_is_counted_until_its_end(
    gateway: Gateway, upstream: Upstream
) -> None:
    permits = held()
    upstream.answer = Answer(tokens=10, permits=permits)
    connection = gateway.open(stream=True)
    wait_until(lambda: gateway.inflight() == 1, what="the stream")
    before = set(gateway.workers())
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: set(gateway.workers()) - before, what="new workers")
    upstream.answer = Answer()
    assert gateway.post().status_code == 200
    wait_until(lambda: gateway.inflight() == 1, what="the stream alone")
    permits.release(100)
    assert connection.getresponse().read() == upstream.received[0].sent
    connection.close()
    gateway.settle()
    assert len(gateway.completions(2)) == 2


def test_a_quit_waits_for_streams_and_loses_no_record(gateway: Gateway, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(tokens=6, permits=permits)
    connection = gateway.open(stream=True)
    wait_until(lambda: upstream.received, what="the stream")
    gateway.signal(signal.SIGQUIT)
    wait_until(lambda: not listens(gateway), what="the quit")
    permits.release(100)
    assert b"[DONE]" in connection.getresponse().read()
    connection.close()
    assert gateway.completions()[0]["outcome"] == "ok"


def test_a_drain_ends_at_its_limit(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], limits={"drain": "1s"})
    upstream.answer = Answer(tokens=100, gap=0.2)
    connection = gateway.open(stream=True)
    wait_until(lambda: upstream.received, what="the stream")
    begin = time.monotonic()
    gateway.signal(signal.SIGHUP)
    wait_until(lambda: upstream.received[0].closed_at, what="the end")
    assert 0.8 < time.monotonic() - begin < 10
    connection.close()


def test_a_killed_worker_s_requests_leave_the_ledger(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(tokens=200, gap=0.1)
    connections = [gateway.open(stream=True) for _ in range(4)]
    wait_until(lambda: gateway.inflight() == 4, what="four streams")
    replace_workers(gateway.workers)
    gateway.settle()
    for connection in connections:
        connection.close()


def test_workers_of_another_user_reach_all_they_need(start_gateway: Start, upstream: Upstream) -> None:
    """Under root the workers are www-data, which may read neither the keys nor a closed state folder."""
    gateway = start_gateway([backend(upstream)])
    if os.geteuid() != 0:
        return
    state = Path("/tmp") / f"tokenweir-test-{os.getpid()}"
    state.mkdir(mode=0o700)
    paths = Paths.under(state)
    assert not paths.prefix.is_relative_to(state)
    other = Gateway(paths.prefix, gateway.config.redis.port)
    other.paths = paths
    other.sequence, other.version = gateway.sequence, gateway.version
    try:
        other.start()
        other.wait_for("snapshot", gateway.sequence)
        other.wait_for("settings", gateway.version)
        body = b'{"model":"llama","messages":["' + b"x" * 6_000_000 + b'"]}'
        assert other.post(body=body).status_code == 200
        user = Path(f"/proc/{other.workers()[0]}").stat().st_uid
        assert user != 0
    finally:
        other.stop()
        shutil.rmtree(state)
        shutil.rmtree(paths.prefix.parent)
