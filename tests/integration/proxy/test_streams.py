"""Streams that end badly: a last event says why, and what the engine held is freed."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.servers import quickest, wait_until
from tests.integration.upstream import Answer, Upstream, event, held


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
    gateway.settle()
    assert len(upstream.received) == 1


def test_a_stream_is_known_by_its_type_in_capitals_too(gateway: Gateway, upstream: Upstream) -> None:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream;charset=utf-8\r\nConnection: close\r\n"
    events = event("a") + event("b")
    upstream.answer = Answer(raw=head + b"Content-Length: %d\r\n\r\n" % len(events) + events)
    assert gateway.post(stream=True).content == events
    assert gateway.completions()[0]["events"] == 2


def test_a_stream_silent_for_too_long_ends_with_an_error_event(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"idle_ms": 1000}})
    upstream.answer = Answer(tokens=9, gap=0.05, break_after=6, broken_by="silence")
    answer = gateway.post(stream=True)
    assert last_event(answer.text)["code"] == "upstream_timeout"
    gateway.settle()
    assert gateway.completions()[0]["outcome"] == "timeout"


def test_a_stream_over_its_deadline_ends_with_an_error_event(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"deadline_ms": 500}})
    upstream.answer = Answer(tokens=300, gap=0.1)
    begin = time.monotonic()
    answer = gateway.post(stream=True)
    assert time.monotonic() - begin < 10
    end = last_event(answer.text)
    assert (end["code"], "0.5 s (limits.deadline)" in end["message"]) == ("deadline_exceeded", True)
    assert gateway.completions()[0]["outcome"] == "timeout"
    wait_until(lambda: upstream.received[0].closed_at, what="the end of the upstream's connection")


def test_a_stream_that_falls_silent_ends_at_its_deadline_and_says_nothing_of_the_backend(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    settings = {"limits": {"deadline_ms": 1000}, "health": {"failures": 1}}
    gateway = start_gateway([backend(upstream)], settings, workers=1)
    upstream.answer = Answer(tokens=9, gap=0.2, break_after=4, broken_by="silence")

    def fall_silent() -> float:
        begin = time.monotonic()
        answer = gateway.post(stream=True)
        seconds = time.monotonic() - begin
        assert answer.text.startswith(event("t0").decode())
        assert last_event(answer.text)["code"] == "deadline_exceeded"
        wait_until(lambda: upstream.received[-1].closed_at, what="the end of the upstream's connection")
        return seconds

    assert 0.9 < quickest(fall_silent, enough=1.4) < 1.4
    assert {record["outcome"] for record in gateway.completions()} == {"timeout"}
    assert gateway.metric("tokenweir_backend_ejected") == 0
    upstream.answer = Answer()
    assert gateway.post(stream=True).status_code == 200, "its prompt is under no suspicion"


def test_a_deadline_ends_only_the_stream_whose_it_is(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    keys = [
        {"id": "hasty", "sha256": sha256("sk-1"), "deadline_ms": 600},
        {"id": "slow", "sha256": sha256("sk-2"), "deadline_ms": 20_000},
        {"id": "free", "sha256": sha256("sk-3")},
    ]
    gateway = start_gateway([backend(upstream)], {"keys": keys}, workers=1)
    upstream.answer = Answer(tokens=12, gap=0.1)
    streams = [gateway.open({"Authorization": f"Bearer sk-{k}"}, stream=True) for k in (1, 2, 3, 1, 2, 3)]
    ends = [stream.getresponse().read().decode() for stream in streams]
    assert ["deadline_exceeded" in end for end in ends] == [True, False, False, True, False, False]
    assert all("[DONE]" in end for end in (ends[1], ends[2], ends[4], ends[5]))


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_does_not_read_keeps_no_answer_beyond_its_deadline(
    start_gateway: Callable[..., Gateway], upstream: Upstream, stream: bool
) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"deadline_ms": 1000}})
    many = [event("x" * 1000)] * 20_000
    upstream.answer = Answer(events=many) if stream else Answer(body=b"".join(many))
    connection = gateway.open(stream=stream)
    wait_until(lambda: upstream.received, what="the request")
    gateway.settle()
    assert gateway.completions()[0]["outcome"] == "timeout"
    assert gateway.metric("tokenweir_backend_ejected") == 0
    connection.close()


def test_an_answer_that_does_not_begin_before_the_deadline_is_504(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    settings = {"limits": {"deadline_ms": 400}, "health": {"failures": 1, "hang_ms": 60_000}}
    gateway = start_gateway([backend(upstream)], settings)
    upstream.answer = Answer(permits=held())
    answers = [gateway.post() for _ in range(5)]
    assert [answer.status_code for answer in answers] == [504] * 5
    assert [answer.json()["error"]["code"] for answer in answers] == ["deadline_exceeded"] * 5
    assert {record["outcome"] for record in gateway.completions(5)} == {"timeout"}
    assert gateway.metric("tokenweir_backend_ejected") == 0


def test_an_answer_that_does_not_begin_within_the_limit_of_silence_is_the_backend_s_fault(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    limits = {"deadline_ms": 60_000, "idle_ms": 1000}
    gateway = start_gateway([backend(upstream)], {"limits": limits, "health": {"failures": 1}})
    upstream.answer = Answer(permits=held())
    answer = gateway.post()
    assert answer.status_code == 504
    error = answer.json()["error"]
    assert (error["code"], "limits.idle" in error["message"]) == ("upstream_timeout", True)
    wait_until(lambda: gateway.metric("tokenweir_backend_ejected") == 1, what="the ejection")


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
