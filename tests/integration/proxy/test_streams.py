"""Streams that end badly: a last event says why, and what the engine held is freed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream, event


def last_event(text: str) -> dict[str, str]:
    """The error of the last event."""
    events = [part for part in text.split("\n\n") if part]
    error: dict[str, str] = json.loads(events[-1].removeprefix("data: "))["error"]
    return error


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_stream_that_breaks_ends_with_an_error_event(
    gateway: Gateway, upstream: Upstream, how: str
) -> None:
    upstream.answer = Answer(tokens=9, break_after=2, broken_by=how, gap=0.02)  # type: ignore[arg-type]
    answer = gateway.post(stream=True)
    assert answer.status_code == 200
    assert answer.text.startswith((event("t0") + event("t1")).decode())
    assert last_event(answer.text)["code"] == "upstream_broke"
    assert answer.headers["connection"] in {"keep-alive", "close"}
    record = gateway.completions()[0]
    assert (record["outcome"], record["events"]) == ("upstream_broke", 2)
    assert gateway.inflight() == 0
    assert len(upstream.received) == 1


def test_a_stream_silent_for_too_long_ends_with_an_error_event(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"idle_ms": 1000}})
    upstream.answer = Answer(tokens=9, break_after=2, broken_by="silence")
    answer = gateway.post(stream=True)
    assert last_event(answer.text)["code"] in {"upstream_broke", "upstream_timeout"}
    assert gateway.inflight() == 0


def test_a_stream_over_its_deadline_ends_with_an_error_event(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"deadline_ms": 500}})
    upstream.answer = Answer(tokens=100, gap=0.1)
    begin = time.monotonic()
    answer = gateway.post(stream=True)
    assert time.monotonic() - begin < 1.5
    assert last_event(answer.text)["code"] == "deadline_exceeded"
    assert gateway.completions()[0]["outcome"] == "timeout"
    wait_until(lambda: upstream.received[0].closed_at, what="the end of the upstream's connection")


def test_an_answer_that_does_not_begin_before_the_deadline_is_504(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"deadline_ms": 400}})
    upstream.answer = Answer(delay=3)
    answer = gateway.post()
    assert answer.status_code == 504
    assert answer.json()["error"]["code"] == "deadline_exceeded"
    assert gateway.completions()[0]["outcome"] == "timeout"


def test_a_plain_answer_that_breaks_is_not_made_longer(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(break_after=10)
    with pytest.raises(httpx.RemoteProtocolError):
        gateway.post()
    assert gateway.completions()[0]["outcome"] == "upstream_broke"


def test_a_stream_that_breaks_is_never_sent_to_another_backend(
    pair: tuple[Gateway, Upstream, Upstream],
) -> None:
    gateway, first, second = pair
    for upstream in (first, second):
        upstream.answer = Answer(break_after=1)
    gateway.post(stream=True)
    assert len(first.received) + len(second.received) == 1
