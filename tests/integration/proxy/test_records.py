"""What is said of a request: response headers, the access log, the completion record. Never its text."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Callable

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream
from tokenweir.contract.records import Completion, ModelStats

Start = Callable[..., Gateway]


def test_every_answer_says_where_it_went_and_why(gateway: Gateway) -> None:
    headers = gateway.post(max_tokens=16).headers
    assert headers["x-tokenweir-backend"] == "gpu-a"
    assert 1 <= int(headers["x-tokenweir-predicted-tokens"]) <= 16
    assert int(headers["x-tokenweir-wait-ms"]) < 1000


def test_each_header_can_be_turned_off(start_gateway: Start, upstream: Upstream) -> None:
    off = {"backend": False, "predicted_tokens": False, "wait_ms": False}
    gateway = start_gateway([backend(upstream)], {"headers": off})
    assert not [name for name in gateway.post().headers if name.startswith("x-tokenweir-")]


def test_headers_of_that_name_from_others_are_dropped(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(headers={"X-Tokenweir-Backend": "forged", "X-Tokenweir-Degraded": "forged"})
    answer = gateway.post(headers={"X-Tokenweir-Backend": "forged", "X-Tokenweir-Wait-Ms": "0"})
    assert answer.headers.get_list("x-tokenweir-backend") == ["gpu-a"]
    assert "x-tokenweir-degraded" not in answer.headers
    assert not [name for name in upstream.received[0].headers if name.startswith("x-tokenweir-")]


def test_a_request_keeps_its_client_s_id_everywhere(gateway: Gateway, upstream: Upstream) -> None:
    answer = gateway.post(headers={"X-Request-Id": "job-7.a"})
    assert answer.headers.get_list("x-request-id") == ["job-7.a"]
    assert upstream.received[0].headers["x-request-id"] == "job-7.a"
    assert gateway.access_log()[0]["id"] == gateway.completions()[0]["id"] == "job-7.a"


def test_an_id_among_very_many_headers_is_followed_too(gateway: Gateway, upstream: Upstream) -> None:
    headers = {**{f"X-{k}": "1" for k in range(100)}, "X-Request-Id": "job-8"}
    assert gateway.post(headers=headers).headers.get_list("x-request-id") == ["job-8"]
    assert upstream.received[0].headers["x-request-id"] == "job-8"


@pytest.mark.parametrize("forged", ['a","x":"y', "a b", "", "x" * 65])
def test_an_id_that_is_not_plain_is_replaced(gateway: Gateway, upstream: Upstream, forged: str) -> None:
    upstream.answer = Answer(headers={"X-Request-Id": "engine"})
    ids = gateway.post(headers={"X-Request-Id": forged}).headers.get_list("x-request-id")
    assert len(ids) == 1
    assert len(ids[0]) == 32
    assert upstream.received[0].headers["x-request-id"] == ids[0]


@pytest.mark.parametrize("path", ["chat/completions", "completions", "responses", "embeddings"])
def test_the_access_log_tells_the_path(gateway: Gateway, path: str) -> None:
    gateway.post(f"/v1/{path}", {"model": "llama", "prompt": "Hi", "input": "Hi", "messages": []})
    line = gateway.access_log()[0]
    assert (line["path"], line["kind"]) == (f"/v1/{path}", path.partition("/")[0])


def test_the_access_log_tells_the_request_s_story(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(tokens=5, gap=0.05)
    gateway.post(stream=True, max_tokens=9)
    line = gateway.access_log()[0]
    assert line["path"] == "/v1/chat/completions"
    assert (line["kind"], line["model"], line["backend"], line["outcome"]) == ("chat", "llama", "gpu-a", "ok")
    assert (line["status"], line["output"], line["prompt"], line["tries"]) == (200, 5, 7, 1)
    assert 1 <= line["predicted"] <= 9
    assert 0 <= line["ttft_ms"] < 1000 * line["total_s"]
    assert line["wait_ms"] < 1000


def test_the_access_log_tells_why_a_request_was_refused(gateway: Gateway) -> None:
    gateway.post(model="gpt-5")
    line = gateway.access_log()[0]
    assert (line["status"], line["outcome"], line["code"]) == (404, "refused", "model_not_found")
    assert line["model"] == "gpt-5"


def test_the_access_log_tells_of_an_answer_that_broke_off_and_of_none_after_it(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], workers=1)
    upstream.script = [Answer(break_after=2)]
    gateway.post(stream=True)
    gateway.post(stream=True)
    gateway.post(body=b"{")
    lines = gateway.access_log(3)
    assert [line.get("code") for line in lines] == ["upstream_broke", None, "invalid_json"]


def test_the_access_log_tells_how_long_a_refused_request_waited(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, concurrency=1)], workers=1)
    upstream.answer = Answer(tokens=2, gap=1.0)
    with contextlib.closing(gateway.open(stream=True)):
        wait_until(lambda: gateway.inflight() == 1, what="the request before it")
        assert gateway.post(headers={"X-Max-Wait": "300ms"}).status_code == 429
        line = gateway.access_log()[0]
    assert (line["code"], line["backend"]) == ("overloaded", "")
    assert 250 <= line["wait_ms"] < 1000


def test_the_access_log_holds_no_prompt_no_key_and_no_query(gateway: Gateway) -> None:
    body = b'{"model":"llama","messages":[{"role":"user","content":"SECRET-PROMPT"}]}'
    gateway.post(
        "/v1/chat/completions?api_key=SECRET-QUERY", body=body, headers={"Authorization": "Bearer SECRET-KEY"}
    )
    gateway.access_log()
    assert "SECRET" not in gateway.paths.access_log.read_text() + gateway.error_log()
    gateway.completions()
    assert "SECRET" not in str(gateway.redis.xrange("tw:completions"))


def test_a_log_line_cannot_be_forged(gateway: Gateway) -> None:
    path = '/v1/x"}%0a{"time":"forged"}'
    with socket.create_connection(("127.0.0.1", gateway.port)) as connection:
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        while connection.recv(4096):
            pass
    lines = gateway.paths.access_log
    assert gateway.access_log()[0]["path"] == '/v1/x"}\n{"time":"forged"}'
    assert len(lines.read_text().splitlines()) == 1


def test_the_completion_record_keeps_the_contract(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(tokens=4)
    gateway.post(stream=True, n=2, max_tokens=50)
    record = Completion.model_validate(gateway.completions()[0])
    assert (record.backend, record.model, record.kind, record.n, record.stream) == (
        "gpu-a",
        "llama",
        "chat",
        2,
        True,
    )
    assert (record.output, record.output_source, record.events, record.prompt) == (4, "usage", 4, 7)
    assert (record.finish, record.status, record.outcome, record.policy) == ("stop", 200, "ok", "predictive")
    assert record.max_tokens == 50
    assert 0 < record.mean <= 50
    assert record.ttft_ms is not None
    assert record.ttft_ms <= record.total_ms
    assert record.gateway == "gw-test"


def test_without_usage_events_times_tokens_per_event_are_counted(
    gateway: Gateway, upstream: Upstream
) -> None:
    gateway.learn(llama=ModelStats(count=9, mean=20, median=18, spread=0.5, tokens_per_event=2.5))
    upstream.answer = Answer(tokens=4, usage=False)
    gateway.post(stream=True)
    record = gateway.completions()[0]
    assert (record["output"], record["output_source"], record["events"]) == (10, "events", 4)


def test_a_plain_answer_s_usage_is_read(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(tokens=11)
    gateway.post()
    record = gateway.completions()[0]
    assert (record["output"], record["output_source"], record["prompt"]) == (11, "usage", 7)
    assert record["finish"] == "stop"


def test_requests_are_counted_by_model_backend_and_outcome(gateway: Gateway) -> None:
    gateway.post()
    gateway.post(model="none")
    name = "tokenweir_requests_total"
    served, refused = (
        {"model": "llama", "backend": "gpu-a", "outcome": "ok"},
        {"outcome": "refused", "status": "4xx"},
    )
    wait_until(lambda: gateway.metric(name, **served) == 1, what="the count of the served")
    wait_until(lambda: gateway.metric(name, **refused) == 1, what="the count of the refused")


def test_only_the_metrics_are_served_on_their_port(gateway: Gateway) -> None:
    answer = httpx.get(f"http://127.0.0.1:{gateway.metrics_port}/v1/models")
    assert answer.status_code == 404
    assert json.loads(answer.text)["error"]["code"] == "not_found"
    assert gateway.get("/metrics").status_code == 404
