"""Bodies beyond the memory limit: read in a worker thread, never let through unread, blocking nobody."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import PATIENCE, quickest, wait_until
from tests.integration.upstream import Upstream

Start = Callable[..., Gateway]
LIMITS = {"body_memory": "64KiB", "body_max": "32MiB"}


def chat(size: int, model: str = "llama") -> bytes:
    text = json.dumps('prose with "quotes" and \\ ' * (size // 26 + 1))
    return f'{{"messages":[{{"role":"user","content":{text}}}],"model":"{model}","max_tokens":5}}'.encode()


@pytest.fixture
def small_memory(start_gateway: Start, upstream: Upstream) -> Gateway:
    """A gateway that keeps 64 KiB of a body in memory; the engine calls the model meta/llama."""
    return start_gateway([backend(upstream, models={"llama": "meta/llama", "same": "same"})], limits=LIMITS)


@pytest.mark.parametrize("size", [1_000, 60_000, 200_000, 5_000_000])
def test_a_body_of_any_size_is_routed_by_its_model_and_rewritten(
    small_memory: Gateway, upstream: Upstream, size: int
) -> None:
    body = chat(size)
    assert small_memory.post(body=body).status_code == 200
    assert upstream.received[0].body == body.replace(b'"model":"llama"', b'"model":"meta/llama"')


def test_a_large_body_that_needs_no_change_is_passed_as_it_is(
    small_memory: Gateway, upstream: Upstream
) -> None:
    body = chat(1_000_000, "same")
    assert small_memory.post(body=body).status_code == 200
    assert upstream.received[0].body == body
    assert small_memory.completions()[0]["prompt_bytes"] > 900_000


def test_a_large_body_is_checked_like_a_small_one(small_memory: Gateway, upstream: Upstream) -> None:
    assert small_memory.post(body=chat(200_000, "none")).status_code == 404
    assert small_memory.post(body=chat(200_000)[:-1]).status_code == 400
    assert small_memory.post(body=b'{"model":"same",' + chat(200_000)[1:]).status_code == 400
    assert not upstream.received


def test_no_file_of_a_body_is_left(small_memory: Gateway) -> None:
    for _ in range(3):
        small_memory.post(body=chat(300_000))
    temp = small_memory.folder / "temp"
    wait_until(lambda: not any(path.is_file() for path in temp.rglob("*")), what="an empty folder")


def test_a_changed_body_that_cannot_be_written_is_no_backend_s_fault(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, models={"llama": "meta/llama"})], limits=LIMITS, workers=1)
    (worker,) = gateway.workers()
    for k in range(1, 9):
        # as it is where the disk is full: the new file cannot be made
        (gateway.folder / "temp/body" / f"{k:010}.{worker}.{k}").mkdir()
    for _ in range(8):
        answer = gateway.post(body=chat(200_000))
        assert answer.status_code == 500
        assert answer.json()["error"]["code"] == "internal_error"
    assert gateway.post().status_code == 200
    gateway.settle()
    assert gateway.metric("tokenweir_ejections_total") == 0
    records = gateway.completions(9)
    assert [record["outcome"] for record in records] == ["refused"] * 8 + ["ok"]


def test_clients_that_leave_while_their_body_is_changed_leave_no_file(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, models={"llama": "meta/llama"})], limits=LIMITS, workers=1)
    body = chat(6_000_000)
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: {len(body)}\r\n\r\n"
    for k in range(24):
        with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
            connection.sendall(head.encode() + body)
            time.sleep(k * 0.001)
    gateway.access_log(24)
    assert len(upstream.received) < 24, "no client left in time"
    temp = gateway.folder / "temp"
    wait_until(lambda: not any(path.is_file() for path in temp.rglob("*")), what="an empty folder")
    assert gateway.post(body=body).status_code == 200
    gateway.settle()


def test_bodies_that_a_killed_gateway_left_are_removed_at_the_next_start(
    start_gateway: Start, upstream: Upstream, tmp_path: Path
) -> None:
    left = tmp_path / "gateway" / "temp" / "body" / "0000000001.77.1"
    left.parent.mkdir(parents=True)
    left.write_bytes(b"x")
    os.utime(left, (time.time() - 60, time.time() - 60))
    gateway = start_gateway([backend(upstream)], limits=LIMITS)
    wait_until(lambda: not left.exists(), what="the removal")
    assert gateway.post(body=chat(100_000)).status_code == 200


PROBE = """
import http.client, sys, threading, time
slowest = 0
over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), over.set()), daemon=True).start()
print("ready", flush=True)
while not over.is_set():
    begin = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    connection.request("GET", "/healthz")
    assert connection.getresponse().status == 200
    connection.close()
    slowest = max(slowest, time.monotonic() - begin)
print(slowest)
"""


def slowest(gateway: Gateway, body: bytes) -> float:
    """Seconds that the slowest of other requests took while this one was served."""
    command = [sys.executable, "-c", PROBE, str(gateway.port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as probe:
        assert probe.stdout
        assert probe.stdout.readline() == "ready\n"
        assert gateway.post(body=body).status_code == 200
        return float(probe.communicate(timeout=PATIENCE)[0])


def test_other_requests_are_served_while_a_large_body_is_read(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], limits={"body_memory": "64KiB"}, workers=1)
    body = chat(30_000_000)
    assert quickest(lambda: slowest(gateway, body), enough=0.3) < 0.3


def tiny_values(size: int, model: str = "llama") -> bytes:
    """What takes longest to read: nothing is long in it."""
    nested = b"[" * 100 + b"]" * 100 + b","
    return b'{"model":"%s","messages":[],"x":[%s[]]}' % (model.encode(), nested * (size // len(nested)))


def test_a_body_in_memory_of_very_many_values_is_checked_and_rewritten(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, models={"llama": "meta/llama"})])
    body = tiny_values(300_000)
    assert gateway.post(body=body).status_code == 200
    assert upstream.received[0].body == body.replace(b'"model":"llama"', b'"model":"meta/llama"')
    assert gateway.post(body=tiny_values(300_000, "none")).status_code == 404
    answer = gateway.post(body=body[:-1])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_json")
    assert gateway.post("/v1/rerank", body=body).status_code == 200
    assert upstream.received[1].json["model"] == "meta/llama"


def cpu_of_threads(pid: int) -> tuple[int, int]:
    """CPU time of a process's first thread, and of its others, in the kernel's ticks."""
    spent = {}
    for task in Path(f"/proc/{pid}/task").iterdir():
        fields = (task / "stat").read_text().rpartition(")")[2].split()
        spent[int(task.name)] = int(fields[11]) + int(fields[12])
    own = spent.pop(pid)
    return own, sum(spent.values())


def test_one_of_very_many_values_is_read_beside_the_worker(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], limits={"body_memory": "24MiB"}, workers=1)
    body = tiny_values(20_000_000, "none")  # so that the upstream need not read it
    (worker,) = gateway.workers()
    before = cpu_of_threads(worker)
    assert gateway.post(body=body).status_code == 404
    own, others = (spent - earlier for spent, earlier in zip(cpu_of_threads(worker), before, strict=True))
    assert others > own / 2, "what the worker itself spends is for receiving it"


def test_a_body_whose_client_leaves_halfway_holds_nothing(small_memory: Gateway, upstream: Upstream) -> None:
    with socket.create_connection(("127.0.0.1", small_memory.port)) as connection:
        connection.sendall(
            b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n" + b"x" * 100
        )
        time.sleep(0.1)
    small_memory.access_log()
    small_memory.settle()
    assert not upstream.received
