"""Answers that no engine should give: what the client sees, and what is believed of them."""

from __future__ import annotations

import json
from collections.abc import Callable

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.upstream import Answer, Upstream, event

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
ANSWER = HEAD + b"Content-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 100 Continue\r\n\r\n" + ANSWER,
        b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + ANSWER,
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        b"HTTP/1.1 000 X\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 600 X\r\nContent-Length: 2\r\n\r\n{}",
        b"HTTP/1.1 999 X\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    ],
    ids=["100", "103", "101", "000", "600", "999"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_is_no_answer_is_told_at_once_and_is_the_backend_s_fault(
    start_gateway: Callable[..., Gateway], upstream: Upstream, raw: bytes, stream: bool
) -> None:
    gateway = start_gateway([backend(upstream)], {"health": {"failures": 1}})
    upstream.answer = Answer(raw=raw)
    answer = gateway.post(stream=stream)
    assert answer.status_code == 502
    assert answer.json()["error"]["code"] == "upstream_broke"
    gateway.settle()
    assert gateway.completions()[0]["outcome"] == "upstream_broke"
    gateway.expect(1, "tokenweir_backend_ejected")


def test_bytes_without_a_head_are_the_backend_s_fault_and_stand_in_the_log_as_a_502(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], {"health": {"failures": 1}})
    upstream.answer = Answer(raw=b"SSH-2.0-OpenSSH_9.2\r\n")
    with pytest.raises(httpx.RemoteProtocolError):
        gateway.post()
    assert gateway.access_log()[0]["status"] == 502
    assert gateway.completions()[0]["outcome"] == "upstream_broke"
    gateway.expect(1, "tokenweir_backend_ejected")


EVENT = event("a")
CHUNK = b"%x\r\n%s\r\n" % (len(EVENT), EVENT)


@pytest.mark.parametrize("before", [b"", CHUNK], ids=["at once", "after a chunk"])
@pytest.mark.parametrize("stream", [False, True])
def test_broken_chunks_are_the_backend_s_fault(
    start_gateway: Callable[..., Gateway], upstream: Upstream, stream: bool, before: bytes
) -> None:
    gateway = start_gateway([backend(upstream)], {"health": {"failures": 1}})
    kind = b"text/event-stream" if stream else b"application/json"
    head = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nTransfer-Encoding: chunked\r\n\r\n" % kind
    upstream.answer = Answer(raw=head + before + b"no length\r\n")
    with pytest.raises(httpx.RemoteProtocolError):
        gateway.post(stream=stream)
    gateway.settle()
    assert gateway.completions()[0]["outcome"] == "upstream_broke"
    gateway.expect(1, "tokenweir_backend_ejected")


def test_broken_chunks_are_told_from_a_client_that_left_behind_a_trusted_proxy_too(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], listen={"trusted_proxies": ["127.0.0.1"]})
    upstream.answer = Answer(raw=HEAD + b"Transfer-Encoding: chunked\r\n\r\nno length\r\n")
    with pytest.raises(httpx.RemoteProtocolError):
        gateway.post(headers={"X-Forwarded-For": "203.0.113.7"})
    assert gateway.completions()[0]["outcome"] == "upstream_broke"


@pytest.mark.parametrize("stream", [False, True])
def test_figures_that_no_engine_can_mean_are_not_believed(
    gateway: Gateway, upstream: Upstream, stream: bool
) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 4_000_000_000}
    document = json.dumps({"choices": [{"delta": {"content": "a"}}], "usage": usage}).encode()
    upstream.answer = Answer(events=[b"data: " + document + b"\n\n"]) if stream else Answer(body=document)
    gateway.post(stream=stream)
    record = gateway.completions()[0]
    assert record["output"] in {None, 1, 2}
    assert record["output_source"] in {"none", "events"}
    assert record["prompt"] == 5


def test_no_more_tokens_are_cached_than_the_prompt_has(gateway: Gateway, upstream: Upstream) -> None:
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 900}}
    upstream.answer = Answer(body=json.dumps({"choices": [], "usage": usage}).encode())
    gateway.post()
    record = gateway.completions()[0]
    assert (record["prompt"], record["output"], record["cached"]) == (5, 7, 5)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_redirect_of_an_engine_to_itself_does_not_lead_past_the_gateway(
    gateway: Gateway, upstream: Upstream, scheme: str
) -> None:
    location = f"{scheme}://127.0.0.1:{upstream.port}/v1/chat/completions"
    upstream.answer = Answer(status=307, body=b"", headers={"Location": location})
    answer = gateway.post("/v1/chat/completions/")
    assert answer.status_code == 307
    assert answer.headers["location"] == "/v1/chat/completions"


def test_a_stream_that_fell_silent_says_nothing_of_the_requests_after_it(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], {"limits": {"idle_ms": 1000}}, workers=1)
    upstream.answer = Answer(tokens=9, gap=0.05, break_after=6, broken_by="silence")
    gateway.post(stream=True)
    gateway.settle()
    upstream.answer = Answer()
    for stream in (True, False, True):
        assert gateway.post(stream=stream).status_code == 200
    outcomes = [record["outcome"] for record in gateway.completions(4)]
    assert outcomes == ["timeout", "ok", "ok", "ok"]
    upstream.answer = Answer(break_after=2)
    assert "upstream_broke" in gateway.post(stream=True).text


PAGE = b"\r\n <!DOCTYPE html><html><title>Please log in</title></html>"


@pytest.mark.parametrize(
    "answer",
    [
        Answer(body=b""),
        Answer(status=204, body=b""),
        Answer(body=PAGE),
        Answer(status=302, body=b"", headers={"Location": "https://login.example/"}),
    ],
    ids=["nothing", "204", "a page", "a redirect"],
)
@pytest.mark.parametrize("stream", [False, True])
def test_what_answers_at_once_but_tells_nothing_attracts_no_traffic(
    start_gateway: Callable[..., Gateway],
    start_upstream: Callable[..., Upstream],
    answer: Answer,
    stream: bool,
) -> None:
    engine, login = start_upstream("engine"), start_upstream("login")
    gateway = start_gateway([backend(engine), backend(login)], policy="least_conn", workers=1)
    engine.answer = Answer(delay=0.01)
    login.answer = answer
    for _ in range(60):
        gateway.post(stream=stream)
    gateway.settle()
    outcomes = {record["outcome"] for record in gateway.completions(60) if record["backend"] == "login"}
    assert outcomes == {"refused"}
    assert len(login.received) < 20
