"""The small model beside a gateway: it refines predictions where there is time, and nothing depends on it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from model.core import Core
from model.publication import Publication
from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.proxy.test_predictor import documents, wait_for
from tests.integration.servers import ROOT, wait_until
from tests.integration.upstream import Answer, Upstream, held

__all__ = ["documents"]
ON = {"predictor": {"small_model": True}}


@pytest.fixture(scope="module")
def core() -> Core:
    return Core()


@pytest.fixture
def gateway(start_gateway: Callable[..., Gateway], upstream: Upstream, documents: dict[str, str]) -> Gateway:
    gateway = start_gateway([backend(upstream)], ON, workers=1)
    Publication(gateway.redis).publish("first", documents["first"])
    wait_for(gateway, "first")
    return gateway


Started = Callable[[Gateway], subprocess.Popen[bytes]]


@pytest.fixture
def small_model_of(tmp_path: Path) -> Iterator[Started]:
    """Starts the small model beside a gateway."""
    processes = []

    def start(gateway: Gateway) -> subprocess.Popen[bytes]:
        socket = gateway.paths.small_model_socket
        socket.parent.mkdir(exist_ok=True)
        command = [sys.executable, "-m", "model.small.service", str(socket), str(tmp_path / "head.npz")]
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
        processes.append(subprocess.Popen(command, cwd=ROOT, env=environment))
        wait_until(socket.exists, 60, "the small model")
        return processes[-1]

    yield start
    for process in processes:
        process.terminate()
        process.wait(30)


@pytest.fixture
def small_model(gateway: Gateway, small_model_of: Started) -> subprocess.Popen[bytes]:
    return small_model_of(gateway)


def results(gateway: Gateway, result: str) -> float:
    return gateway.metric("tokenweir_small_model_total", result=result)


def in_background(gateway: Gateway, **members: Any) -> threading.Thread:
    thread = threading.Thread(target=lambda: gateway.post(**members))
    thread.start()
    return thread


def test_the_first_request_of_a_session_is_refined_while_it_runs(
    gateway: Gateway, upstream: Upstream, small_model: subprocess.Popen[bytes]
) -> None:
    permits = threading.Semaphore(0)
    upstream.answer = Answer(permits=permits)
    thread = in_background(gateway, messages=[{"role": "user", "content": "Tell me of the sea."}])
    wait_until(lambda: results(gateway, "refined") == 1, what="a refined prediction")
    assert gateway.metric("tokenweir_inflight_tokens") > 0
    permits.release()
    thread.join()
    wait_until(lambda: gateway.metric("tokenweir_inflight_tokens") == 0, what="an empty ledger")


def test_a_request_that_waits_is_refined_meanwhile(
    start_gateway: Callable[..., Gateway],
    upstream: Upstream,
    documents: dict[str, str],
    small_model_of: Started,
) -> None:
    gateway = start_gateway([backend(upstream, concurrency=1)], ON, workers=1)
    Publication(gateway.redis).publish("first", documents["first"])
    wait_for(gateway, "first")
    permits = held()
    upstream.answer = Answer(permits=permits)
    first = in_background(gateway, messages=[{"role": "user", "content": "Tell me of the sea."}])
    wait_until(lambda: gateway.inflight() == 1, what="a request that is served")
    small_model_of(gateway)
    second = in_background(gateway, messages=[{"role": "user", "content": "Tell me of the wind."}])
    try:
        wait_until(lambda: results(gateway, "refined") >= 1, what="a refined prediction")
        assert gateway.metric("tokenweir_queue_depth") == 1
        assert gateway.inflight() == 1
    finally:
        permits.release(2)
        first.join()
        second.join()
    gateway.settle()


def test_what_came_out_teaches_it(
    gateway: Gateway, upstream: Upstream, small_model: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    upstream.answer = Answer(delay=0.3)
    for number in range(3):
        gateway.post(messages=[{"role": "user", "content": f"Tell me of sea {number}."}])
    wait_until(
        lambda: gateway.metric("tokenweir_small_model_error_tokens_total", median="corrected") > 0,
        what="errors with its corrections",
    )
    small_model.send_signal(signal.SIGTERM)
    small_model.wait(30)
    from model.small.head import Head

    assert Head.load(tmp_path / "head.npz").learned >= 1


def test_without_it_requests_are_served_as_ever(gateway: Gateway, upstream: Upstream) -> None:
    assert gateway.post(messages=[{"role": "user", "content": "Tell me of the sea."}]).status_code == 200
    wait_until(lambda: results(gateway, "failed") == 1, what="a failed question")
    assert "the small model does not answer" in gateway.error_log()


def test_a_small_model_that_hangs_holds_nobody_up(
    gateway: Gateway, upstream: Upstream, small_model: subprocess.Popen[bytes]
) -> None:
    small_model.send_signal(signal.SIGSTOP)
    try:
        texts = [f"Tell me of sea {number}." for number in range(12)]
        answers = [gateway.post(messages=[{"role": "user", "content": text}]) for text in texts]
        # Each would take 2 s; a busy machine delays one or the other.
        assert sorted(answer.elapsed.total_seconds() for answer in answers)[6] < 1.5
        wait_until(lambda: results(gateway, "failed") >= 1, 30, "a question given up")
    finally:
        small_model.send_signal(signal.SIGCONT)


def test_switched_off_it_is_not_asked(
    start_gateway: Callable[..., Gateway], upstream: Upstream, documents: dict[str, str]
) -> None:
    gateway = start_gateway([backend(upstream)])
    Publication(gateway.redis).publish("first", documents["first"])
    wait_for(gateway, "first")
    gateway.post(messages=[{"role": "user", "content": "Tell me of the sea."}])
    assert "tokenweir_small_model_total{" not in gateway.metrics()
