"""Pages of other origins in a browser: what it asks first, and what it may read (listen.cors_origins)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.integration.proxy.gateway import Gateway, backend, sha256
from tests.integration.upstream import Answer, Upstream

PAGE = "https://chat.example"
ALLOW, METHODS, HEADERS = (f"access-control-allow-{name}" for name in ("origin", "methods", "headers"))
EXPOSED = "access-control-expose-headers"
ENGINE_SAYS = {
    "Access-Control-Allow-Origin": "*",
    "Access-Control-Allow-Credentials": "true",
    "Access-Control-Expose-Headers": "X-Engine",
}

Start = Callable[..., Gateway]


@pytest.fixture
def open_to(start_gateway: Start, upstream: Upstream) -> Callable[..., Gateway]:
    """A gateway that pages of these origins may call, with a key."""

    def start(*origins: str) -> Gateway:
        keys: dict[str, Any] = {"keys": [{"id": "team", "sha256": sha256("sk-1")}]}
        return start_gateway([backend(upstream)], keys, listen={"cors_origins": list(origins)})

    return start


def preflight(gateway: Gateway, origin: str, path: str = "/v1/chat/completions") -> httpx.Response:
    """What a browser asks before it sends a chat with a key."""
    asked = {
        "Origin": origin,
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization,content-type,x-stainless-lang",
    }
    return httpx.request("OPTIONS", gateway.url + path, headers=asked)


def from_page(origin: str = PAGE, key: str = "sk-1") -> dict[str, str]:
    return {"Origin": origin, "Authorization": f"Bearer {key}"}


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/models", "/v1/responses/resp_1", "/healthz"])
def test_a_browser_that_asks_is_answered_without_a_key_and_no_engine_hears_of_it(
    open_to: Callable[..., Gateway], upstream: Upstream, path: str
) -> None:
    answer = preflight(open_to(PAGE), PAGE, path)
    assert (answer.status_code, answer.content) == (204, b"")
    assert answer.headers[ALLOW] == PAGE
    assert "POST" in answer.headers[METHODS]
    assert answer.headers[HEADERS] == "*, Authorization"
    assert answer.headers["access-control-max-age"] == "7200"
    assert answer.headers["vary"] == "Origin"
    assert not upstream.received


def test_a_page_reads_answers_streams_and_the_gateway_s_own_errors(
    open_to: Callable[..., Gateway], upstream: Upstream
) -> None:
    gateway = open_to("https://other.example", PAGE)
    answers = [
        gateway.post(headers=from_page()),
        gateway.post(headers=from_page(), stream=True),
        gateway.get("/v1/models", headers=from_page()),
        gateway.post(headers=from_page(key="sk-2")),
        gateway.post(body=b"{", headers=from_page()),
        gateway.get("/nowhere", headers=from_page()),
    ]
    assert [answer.status_code for answer in answers] == [200, 200, 200, 401, 400, 404]
    for answer in answers:
        assert answer.headers.get_list(ALLOW) == [PAGE]
        assert answer.headers[EXPOSED] == "*"
        assert METHODS not in answer.headers


def test_what_an_engine_says_of_origins_is_not_said_a_second_time(
    open_to: Callable[..., Gateway], upstream: Upstream
) -> None:
    upstream.answer = Answer(headers=ENGINE_SAYS)
    answer = open_to(PAGE).post(headers=from_page())
    assert answer.headers.get_list(ALLOW) == [PAGE]
    assert answer.headers.get_list(EXPOSED) == ["*"]
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize("origin", ["https://chat.example.evil", "http://chat.example", "null", "a\tb"])
def test_another_page_is_told_nothing(
    open_to: Callable[..., Gateway], upstream: Upstream, origin: str
) -> None:
    gateway = open_to(PAGE)
    asked = preflight(gateway, origin)
    assert asked.status_code == 204
    answer = gateway.post(headers=from_page(origin))
    assert answer.status_code == 200
    for one in (asked, answer):
        assert not [name for name in one.headers if name.startswith("access-control-")]


def test_every_page_may_where_that_is_said(open_to: Callable[..., Gateway], upstream: Upstream) -> None:
    gateway = open_to("*")
    assert preflight(gateway, "null").headers[ALLOW] == "*"
    assert gateway.post(headers=from_page("app://anything")).headers[ALLOW] == "*"
    assert ALLOW not in gateway.post(headers={"Authorization": "Bearer sk-1"}).headers


def test_an_options_request_that_is_no_browser_s_question_goes_its_way(
    open_to: Callable[..., Gateway], upstream: Upstream
) -> None:
    answer = httpx.request("OPTIONS", open_to(PAGE).url + "/v1/models", headers={"Origin": PAGE})
    assert answer.status_code == 405


def test_without_the_setting_engines_answer_browsers_themselves(
    start_gateway: Start, upstream: Upstream
) -> None:
    upstream.answer = Answer(headers=ENGINE_SAYS, body=b"{}")
    gateway = start_gateway([backend(upstream)])
    for answer in (preflight(gateway, PAGE), gateway.post(headers={"Origin": PAGE})):
        assert answer.headers.get_list(ALLOW) == ["*"]
        assert answer.headers["access-control-allow-credentials"] == "true"
    assert [one.method for one in upstream.received] == ["OPTIONS", "POST"]
    assert "vary" not in gateway.get("/v1/models", headers={"Origin": PAGE}).headers
