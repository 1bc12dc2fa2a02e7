"""A request's plain way: to a backend and back, unchanged and at once."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import PATIENCE, wait_until
from tests.integration.upstream import Answer, Upstream, event, held

ODD = (
    b'{ "model":"llama" ,"messages":[{"role":"user","content":"\\u00e9\\n"}],'
    b'"stop":[],"seed":9007199254740993, "x": 1e2}'
)


def test_a_request_and_its_answer_pass_byte_for_byte(gateway: Gateway, upstream: Upstream) -> None:
    answer = gateway.post(body=ODD)
    assert answer.status_code == 200, answer.text
    assert upstream.received[0].body == ODD
    assert answer.content == upstream.received[0].sent


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"]
)
def test_every_understood_path_is_served(gateway: Gateway, upstream: Upstream, path: str) -> None:
    assert gateway.post(path, body={"model": "llama", "input": "a", "prompt": "a"}).status_code == 200
    assert upstream.received[0].path == path


def test_any_other_path_below_v1_is_proxied_with_its_query(gateway: Gateway, upstream: Upstream) -> None:
    assert gateway.get("/v1/responses/resp_1?include=a%2Fb&x=%20").status_code == 200
    assert gateway.post("/v1/rerank?a=1", body={"model": "llama", "query": "q"}).status_code == 200
    assert [received.path for received in upstream.received] == [
        "/v1/responses/resp_1?include=a%2Fb&x=%20",
        "/v1/rerank?a=1",
    ]


def test_a_stream_arrives_event_by_event_and_unchanged(gateway: Gateway, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(tokens=4, permits=permits)
    parts = []
    with httpx.stream(
        "POST",
        gateway.url + "/v1/chat/completions",
        json={"model": "llama", "stream": True, "messages": []},
        timeout=PATIENCE,
    ) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        for part in answer.iter_raw():
            parts.append(part)
            permits.release()  # the next event is made only when this one has come
    assert len(parts) == 6
    assert b"".join(parts) == upstream.received[0].sent


def test_events_cut_anywhere_are_passed_as_they_come(gateway: Gateway, upstream: Upstream) -> None:
    whole = event("one") + event("two\u00e9") + b"data: [DONE]\r\n\r\n"
    upstream.answer = Answer(events=[whole[k : k + 7] for k in range(0, len(whole), 7)])
    answer = gateway.post(stream=True)
    assert answer.content == whole
    assert gateway.completions()[0]["events"] == 2


def test_no_compression_is_asked_of_the_engine(gateway: Gateway, upstream: Upstream) -> None:
    gateway.post(headers={"Accept-Encoding": "gzip", "Expect": "100-continue"})
    assert "accept-encoding" not in upstream.received[0].headers
    assert "expect" not in upstream.received[0].headers


def test_connections_to_the_engine_are_kept(gateway: Gateway, upstream: Upstream) -> None:
    for _ in range(10):
        gateway.post()
    assert upstream.connections < 5


def test_an_engine_that_closes_after_a_stream_without_a_word_gets_a_connection_each_time(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, engine="llamacpp")])
    for _ in range(3):
        assert gateway.post(stream=True).status_code == 200
    assert upstream.connections == 3
    assert {received.headers["connection"] for received in upstream.received} == {"close"}


def test_an_engine_cannot_steer_nginx_by_its_headers(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(headers={"X-Accel-Redirect": "/healthz", "X-Accel-Limit-Rate": "1"})
    assert gateway.post().json()["server"] == "gpu-a"


def test_the_trace_context_passes_and_the_host_is_the_backend_s(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, host_header="engine.internal")])
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    gateway.post(headers={"traceparent": trace, "Host": "public.example"})
    assert upstream.received[0].headers["traceparent"] == trace
    assert upstream.received[0].headers["host"] == "engine.internal"


ORIGIN = {
    "Forwarded": "for=203.0.113.7",
    "X-Real-IP": "203.0.113.7",
    "X-Forwarded-For": "198.51.100.1, 203.0.113.7, 127.0.0.1",
    "X-Forwarded-Proto": "https",
    "X-Forwarded-Host": "bank.example",
    "X-Forwarded-Port": "443",
    "X-Forwarded-Prefix": "/else",
    "X-Forwarded-Server": "bank",
}


def origin(upstream: Upstream) -> dict[str, str]:
    """What the engine was told of where the last request came from."""
    told = {name.lower() for name in ORIGIN}
    return {name: value for name, value in upstream.received[-1].headers.items() if name in told}


def test_what_a_client_says_of_where_it_comes_from_is_not_passed_on(
    gateway: Gateway, upstream: Upstream
) -> None:
    gateway.post(headers=ORIGIN)
    assert origin(upstream) == {"x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "http"}
    assert gateway.access_log()[0]["client"] == "127.0.0.1"


def test_a_trusted_proxy_is_believed_whose_request_it_passes_on(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], listen={"trusted_proxies": ["127.0.0.0/8"]})
    gateway.post(headers=ORIGIN)
    assert origin(upstream) == {"x-forwarded-for": "203.0.113.7", "x-forwarded-proto": "http"}
    assert gateway.access_log()[0]["client"] == "203.0.113.7"


def test_requests_go_to_both_backends(pair: tuple[Gateway, Upstream, Upstream]) -> None:
    gateway, first, second = pair
    for _ in range(4):
        gateway.post()
    assert len(first.received) == len(second.received) == 2


def test_nothing_stays_in_flight(gateway: Gateway, upstream: Upstream) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    connections = [gateway.open(n=2, stream=k == 1) for k in range(3)]
    wait_until(lambda: gateway.inflight() == 6, what="six sequences in flight")
    permits.release(100)
    for connection in connections:
        assert connection.getresponse().read()
    gateway.settle()


def test_a_form_without_a_model_goes_by_the_only_model(gateway: Gateway, upstream: Upstream) -> None:
    answer = httpx.post(
        gateway.url + "/v1/audio/transcriptions",
        files={"file": ("a.wav", b"RIFF{}")},
        data={"language": "en"},
    )
    assert answer.status_code == 200
    assert b"RIFF{}" in upstream.received[0].body


def test_a_body_sent_in_chunks_is_understood(gateway: Gateway, upstream: Upstream) -> None:
    def parts() -> object:
        yield from (ODD[:20], ODD[20:60], ODD[60:])

    answer = httpx.post(gateway.url + "/v1/chat/completions", content=parts())  # type: ignore[arg-type]
    assert answer.status_code == 200
    assert upstream.received[0].body == ODD


def test_the_gateway_tells_whether_it_lives_and_is_ready(
    start_gateway: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = start_gateway([])
    assert gateway.get("/healthz").status_code == 200
    assert gateway.get("/readyz").status_code == 503
    assert "no backends" in gateway.get("/readyz").text
    gateway.publish(backend(upstream, state="down"))
    assert gateway.get("/readyz").status_code == 503
    gateway.publish(backend(upstream))
    assert gateway.get("/readyz").text == "ready\n"


def test_before_any_snapshot_requests_are_told_to_come_back(
    start_gateway: Callable[..., Gateway], gateway: Gateway
) -> None:
    gateway.silence()
    gateway.redis.flushall()
    fresh = Gateway(gateway.folder.parent / "fresh", gateway.config.redis.port)
    fresh.start()
    try:
        answer = fresh.post()
        assert answer.status_code == 503
        assert answer.json()["error"]["code"] == "starting"
        assert int(answer.headers["retry-after"]) >= 1
    finally:
        fresh.stop()


def test_the_log_of_a_plain_request_has_no_error(gateway: Gateway) -> None:
    gateway.post()
    assert "[error]" not in gateway.error_log()
    assert json.dumps(gateway.access_log()[0])


def test_a_body_that_is_not_understood_holds_one_sequence_and_no_tokens(
    gateway: Gateway, upstream: Upstream
) -> None:
    permits = held()
    upstream.answer = Answer(permits=permits)
    body = b'--x\r\nContent-Disposition: form-data; name="image"; filename="a"\r\n\r\n' + b"A" * 3_000_000
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(
            gateway.post,
            "/v1/images/edits",
            body + b"\r\n--x--\r\n",
            {"Content-Type": "multipart/form-data; boundary=x"},
        )
        wait_until(lambda: gateway.inflight() == 1, what="the request")
        assert gateway.metric("tokenweir_inflight_tokens") == 0
        time.sleep(0.6)
        assert gateway.metric("tokenweir_inflight_tokens") == 0, "it does not seem to grow either"
        permits.release()
        assert answer.result().status_code == 200


def test_an_answer_without_a_body_is_whole(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(headers={"X-Kept": "yes"})
    answer = httpx.head(gateway.url + "/v1/files/f1")
    assert (answer.status_code, answer.headers["x-kept"], answer.content) == (200, "yes", b"")
    upstream.answer = Answer(status=204, body=b"")
    assert httpx.delete(gateway.url + "/v1/files/f1").status_code == 204
    assert [record["outcome"] for record in gateway.completions(2)] == ["ok", "ok"]
    gateway.settle()
