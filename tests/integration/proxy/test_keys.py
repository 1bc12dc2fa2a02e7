"""API keys: who is let in, what the engines see of keys, how much a key may ask for."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.upstream import Answer, Upstream

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
    start_gateway: Start, upstream: Upstream, tmp_path: Path
) -> None:
    secret = tmp_path / "engine-key"
    secret.write_text("sk-engine\n")
    configured = {"id": "gpu-a", "url": "http://127.0.0.1:1", "api_key_file": str(secret)}
    gateway = start_gateway([backend(upstream)], backends=[configured])
    answer = gateway.post(headers=bearer("sk-mine"))
    assert upstream.received[0].headers["authorization"] == "Bearer sk-engine"
    assert b"sk-engine" not in answer.content + str(answer.headers).encode()
    assert "sk-engine" not in gateway.error_log() + json.dumps(gateway.access_log())


def test_requests_per_minute_are_limited_over_all_workers(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(requests_per_minute=5)]})
    answers = [gateway.post(headers=bearer()) for _ in range(8)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429] * 3
    assert [answer.headers["x-ratelimit-remaining-requests"] for answer in answers[:5]] == [
        "4",
        "3",
        "2",
        "1",
        "0",
    ]
    refused = answers[-1]
    assert refused.headers["x-ratelimit-limit-requests"] == "5"
    assert refused.headers["x-ratelimit-reset-requests"].endswith("s")
    assert 1 <= int(refused.headers["retry-after"]) <= 60
    assert refused.json()["error"]["code"] == "rate_limit_exceeded"
    assert len(upstream.received) == 5


def test_tokens_per_minute_count_what_was_really_used(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(tokens_per_minute=1000)]}, workers=1)
    upstream.answer = Answer(tokens=393)
    first = gateway.post(headers=bearer(), max_tokens=400)
    assert first.status_code == 200
    second = gateway.post(headers=bearer(), max_tokens=10)
    # 7 of the prompt and 393 of the answer are gone, and what the second is reckoned to need
    assert 570 <= int(second.headers["x-ratelimit-remaining-tokens"]) <= 600
    assert gateway.post(headers=bearer(), max_tokens=10).status_code == 200
    refused = gateway.post(headers=bearer(), max_tokens=1000, n=4)
    assert refused.status_code == 429
    assert refused.headers["x-ratelimit-limit-tokens"] == "1000"


def test_what_a_key_used_at_another_gateway_counts(start_gateway: Start, upstream: Upstream) -> None:
    settings = {"keys": [key(requests_per_minute=4)]}
    first = start_gateway([backend(upstream)], settings, gateway_id="gw-1")
    for _ in range(3):
        assert first.post(headers=bearer()).status_code == 200
    second = start_gateway([backend(upstream)], settings, name="second", gateway_id="gw-2")
    assert second.post(headers=bearer()).status_code == 200
    assert second.post(headers=bearer()).status_code == 429


def test_priority_is_bounded_by_the_key(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(max_priority="normal")]}, workers=1)
    for asked in ("high", "low", "urgent"):
        gateway.post(headers={**bearer(), "X-Priority": asked})
    assert [record["priority"] for record in gateway.completions(3)] == ["normal", "low", "normal"]


def test_a_key_s_deadline_bounds_its_requests(start_gateway: Start, upstream: Upstream) -> None:
    gateway = start_gateway([backend(upstream)], {"keys": [key(deadline_ms=300)]})
    upstream.answer = Answer(delay=3)
    assert gateway.post(headers=bearer()).status_code == 504
