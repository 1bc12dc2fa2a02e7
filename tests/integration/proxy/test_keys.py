"""API keys: who is let in, what the engines see of keys, how much a key may ask for."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.servers import RedisServer, wait_until, well_within_a_minute
from tests.integration.upstream import Answer, Upstream, held

Start = Callable[..., Gateway]


def key(name: str = "team", secret: str = "sk-1", **limits: object) -> dict[str, object]:
    return {"id": name, "sha256": sha256(secret), **limits}


def bearer(secret: str = "sk-1") -> dict[str, str]:
    return {"Authorization": f"Bearer {secret}"}


@pytest.fixture
def guarded(start_gateway: Start, upstream: Upstream) -> Gateway:
    """A gateway that asks for a key."""
    return start_gateway([backend(upstream)], {"keys": [key()]})


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, "missing_api_key"),
        (bearer("sk-2"), "invalid_api_key"),
        ({"Authorization": "Bearer"}, "invalid_api_key"),
        ({"Authorization": "Basic sk-1"}, "invalid_api_key"),
    ],
)
def test_without_a_known_key_nothing_is_served(
    guarded: Gateway, upstream: Upstream, headers: dict[str, str], code: str
) -> None:
    for answer in (guarded.post(headers=headers), guarded.get("/v1/models", headers=headers)):
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["code"] == code
    assert not upstream.received


def test_a_known_key_is_let_in_and_never_reaches_the_engine(guarded: Gateway, upstream: Upstream) -> None:
    for headers in (bearer(), {"Authorization": "bearer  sk-1"}, bearer()):
        assert guarded.post(headers=headers).status_code == 200
    assert all(b"sk-1" not in received.raw_head for received in upstream.received)
    assert guarded.completions(3)[0]["key"] == "team"


def test_a_key_that_is_withdrawn_is_refused_at_once(guarded: Gateway) -> None:
    assert guarded.post(headers=bearer()).status_code == 200
    guarded.configure(keys=[key(secret="sk-new")])
    assert guarded.post(headers=bearer()).status_code == 401
    assert guarded.post(headers=bearer("sk-new")).status_code == 200


def test_where_no_keys_are_asked_for_the_client_s_passes_on(gateway: Gateway, upstream: Upstream) -> None:
    gateway.post(headers=bearer("sk-mine"))
    assert upstream.received[0].headers["authorization"] == "Bearer sk-mine"


def test_the_backend_s_own_key_stands_in_place_of_the_client_s(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, wants_key="secrets/a")])
    gateway.know_keys({"secrets/a": "sk-engine"})
    answer = gateway.post(headers=bearer("sk-mine"))
    assert upstream.received[0].headers["authorization"] == "Bearer sk-engine"
    assert b"sk-engine" not in answer.content + str(answer.headers).encode()
    assert "sk-engine" not in gateway.error_log() + json.dumps(gateway.access_log())


def test_a_backend_whose_key_is_not_known_gets_nothing_least_of_all_the_client_s_key(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    keyed, plain = start_upstream("gpu-a"), start_upstream("gpu-b")
    gateway = start_gateway(
        [backend(keyed, wants_key="secrets/a"), backend(plain)], policy="round_robin", workers=1
    )
    for _ in range(4):
        assert gateway.post(headers=bearer("sk-mine")).headers["x-tokenweir-backend"] == "gpu-b"
    assert not keyed.received
    assert gateway.metric("tokenweir_backend_key_missing", backend="gpu-a") == 1

    def ejected() -> dict[str, str]:
        lease: dict[str, dict[str, str]] = json.loads(gateway.redis.get("tw:gateway:gw-test"))
        return lease["ejected"]

    wait_until(lambda: "API key" in ejected().get("gpu-a", ""), what="the lease of a later poll")


def test_where_no_backend_s_key_is_known_the_answer_is_503_and_the_gateway_is_not_ready(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, wants_key="secrets/a")])
    answer = gateway.post(headers=bearer("sk-mine"))
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "no_capacity")
    assert gateway.get("/readyz").status_code == 503
    assert not upstream.received


def test_a_key_that_comes_or_changes_while_the_gateway_runs_is_used_without_a_reload(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream, wants_key="secrets/a")])
    for secret in ("sk-first", "sk-second"):
        gateway.know_keys({"secrets/a": secret})
        for _ in range(4):
            assert gateway.post().status_code == 200
            assert upstream.received[-1].headers["authorization"] == f"Bearer {secret}"


def test_a_damaged_file_of_keys_leaves_those_that_are_known(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream, wants_key="secrets/a")])
    gateway.know_keys({"secrets/a": "sk-engine"})
    gateway.paths.backend_keys.write_text('{"secrets/a": "sk-eng')
    wait_until(lambda: "the keys that are known stay" in gateway.error_log(), what="a line in the log")
    assert gateway.post().status_code == 200
    assert "sk-eng" not in gateway.error_log()


def test_a_key_never_follows_a_backend_s_id_to_another_server(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    before, after = start_upstream("gpu-a"), start_upstream("gpu-b")
    gateway = start_gateway([backend(before, wants_key="secrets/a")])
    gateway.know_keys({"secrets/a": "sk-a"})
    assert gateway.post().status_code == 200
    gateway.publish(backend(after, id="gpu-a", wants_key="secrets/b"))
    assert gateway.post().status_code == 503
    assert not after.received


def test_requests_per_minute_are_limited_over_all_workers(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(requests_per_minute=5)]})
    well_within_a_minute()
    answers = [gateway.post(headers=bearer()) for _ in range(8)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers[:5]] == [
        "4",
        "3",
        "2",
        "1",
        "0",
    ]
    resets = [int(answer.headers["x-ratelimit-reset-requests"].removesuffix("s")) for answer in answers]
    assert all(60 <= reset <= 120 for reset in resets), "from the first on"
    refused = answers[-1]
    assert refused.headers["x-ratelimit-limit-requests"] == "5"
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert len(upstream.received) == 5


def test_tokens_per_minute_count_what_was_really_used(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(tokens_per_minute=1000)]}, workers=1)
    well_within_a_minute()
    upstream.answer = Answer(tokens=393)
    first = gateway.post(headers=bearer(), max_tokens=400)
    assert first.status_code == 200
    gateway.completions()  # what it used is counted when it has been recorded
    second = gateway.post(headers=bearer(), max_tokens=10)
    # 7 of the prompt and 393 of the answer are gone, and what the second is reckoned to need
    assert 570 <= int(second.headers["x-ratelimit-remaining-tokens"]) <= 600
    assert gateway.post(headers=bearer(), max_tokens=10).status_code == 200
    refused = gateway.post(headers=bearer(), max_tokens=1000, n=4)
    assert refused.status_code == 429
    assert refused.headers["x-ratelimit-limit-tokens"] == "1000"


def test_a_request_reckoned_above_the_limit_is_let_in_alone_and_counted_as_it_was(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(tokens_per_minute=100)]}, workers=1)
    well_within_a_minute()
    upstream.answer = Answer(tokens=20)
    first = gateway.post(headers=bearer(), max_tokens=4000)
    assert first.status_code == 200
    assert first.headers["x-ratelimit-remaining-tokens"] == "0"
    assert gateway.post(headers=bearer(), max_tokens=20).status_code == 200, "27 of 100 are used"
    refused = gateway.post(headers=bearer(), max_tokens=4000)
    assert refused.status_code == 429
    assert 1 <= int(refused.headers["retry-after"]) <= 60


def test_a_client_that_leaves_before_its_answer_has_used_what_it_was_reckoned_to(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(tokens_per_minute=1000)]}, workers=1)
    well_within_a_minute()
    upstream.answer = Answer(permits=held())
    connection = gateway.open(headers=bearer(), max_tokens=400)
    wait_until(lambda: len(upstream.received) == 1, what="the request")
    connection.close()
    (record,) = gateway.completions()
    assert record["outcome"] == "client_gone"
    upstream.answer = Answer()
    left = int(gateway.post(headers=bearer(), max_tokens=1).headers["x-ratelimit-remaining-tokens"])
    assert left <= 1000 - record["mean"] < 1000


@pytest.mark.parametrize("stream", [False, True])
def test_what_an_answer_of_another_path_tells_of_its_tokens_counts(
    start_gateway: Start, upstream: Upstream, stream: bool
) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(tokens_per_minute=1000)]}, workers=1)
    well_within_a_minute()
    began = b'{"type":"message_start","message":{"usage":{"input_tokens":300,"output_tokens":1}}}'
    ended = b'{"type":"message_delta","delta":{},"usage":{"output_tokens":200}}'
    upstream.answer = (
        Answer(events=[b"event: message_start\ndata: " + began + b"\n\n", b"data: " + ended + b"\n\n"])
        if stream
        else Answer(body=b'{"type":"message","usage":{"input_tokens":300,"output_tokens":200}}')
    )
    members = {"model": "llama", "stream": stream, "messages": [], "max_tokens": 400}
    body = json.dumps(members).encode()
    assert gateway.post("/v1/messages", body, bearer()).status_code == 200
    gateway.completions()
    left = int(gateway.post("/v1/messages", body, bearer()).headers["x-ratelimit-remaining-tokens"])
    assert left <= 500


def test_what_a_key_used_at_another_gateway_counts(
    start_gateway: Start, upstream: Upstream, redis_server: RedisServer
) -> None:
    def told() -> bytes:
        return str(redis_server.client().get("tw:gateway:gw-1")).replace(" ", "").encode()

    settings = {"keys": [key(requests_per_minute=4)]}
    first = start_gateway([backend(upstream)], settings, gateway_id="gw-1")
    well_within_a_minute(15)  # a new gateway hears only of the present minute
    for _ in range(3):
        assert first.post(headers=bearer()).status_code == 200
    wait_until(lambda: b'"requests":3' in told(), what="the lease of the first")
    second = start_gateway([backend(upstream)], settings, name="second", gateway_id="gw-2")
    wait_until(lambda: second.metric("tokenweir_peers") == 1, what="the first, as the second sees it")
    assert second.post(headers=bearer()).status_code == 200
    assert second.post(headers=bearer()).status_code == 429


@pytest.mark.parametrize("path", ["/v1/responses/resp_1/cancel", "/v1/files"])
def test_a_request_without_a_body_is_no_malformed_one_for_a_key_of_some_models(
    start_gateway: Start, upstream: Upstream, path: str
) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(models=["llama"])]})
    assert gateway.post(path, b"", bearer()).status_code == 200
    assert upstream.received[0].headers["content-length"] == "0"
    gateway.publish(backend(upstream, models={"other": "other"}))
    assert gateway.post(path, b"", bearer()).status_code == 404


def test_priority_is_bounded_by_the_key(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(max_priority="normal")]}, workers=1)
    for asked in ("high", "low", "urgent"):
        gateway.post(headers={**bearer(), "X-Priority": asked})
    assert [record["priority"] for record in gateway.completions(3)] == ["normal", "low", "normal"]


def test_a_key_s_deadline_bounds_its_requests(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(deadline_ms=300)]})
    upstream.answer = Answer(delay=3)
    answer = gateway.post(headers=bearer())
    assert (answer.status_code, answer.json()["error"]["code"]) == (504, "deadline_exceeded")
    assert "its deadline of 0.3 s (keys[].deadline)" in answer.json()["error"]["message"]
