"""A request is executed at most once: sent again only when it was not sent, or was refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.upstream import Answer, Upstream

Pair = tuple[Gateway, Upstream, Upstream]


@pytest.mark.parametrize("status", [429, 503])
def test_a_refused_request_goes_to_another_backend(pair: Pair, status: int) -> None:
    gateway, first, second = pair
    first.script = [Answer(status=status)]
    answers = [gateway.post() for _ in range(2)]
    assert [answer.status_code for answer in answers] == [200, 200]
    assert all(answer.headers["x-tokenweir-backend"] == answer.json()["server"] for answer in answers)
    assert len(first.received) + len(second.received) == 3
    gateway.expect(1, "tokenweir_retries_total", why=str(status))
    gateway.settle()


def test_a_backend_that_cannot_be_reached_is_left_out(pair: Pair) -> None:
    gateway, first, second = pair
    first.crash()
    answers = [gateway.post() for _ in range(6)]
    assert all(answer.status_code == 200 for answer in answers)
    assert len(second.received) == 6
    assert gateway.metric("tokenweir_backend_ejected", backend="gpu-a") == 1
    gateway.settle()


@pytest.mark.parametrize("status", [500, 502, 504])
def test_other_errors_are_the_client_s(pair: Pair, status: int) -> None:
    gateway, first, second = pair
    first.answer = second.answer = Answer(status=status)
    assert gateway.post().status_code == status
    assert len(first.received) + len(second.received) == 1


def test_a_request_that_was_sent_is_not_sent_again(pair: Pair) -> None:
    gateway, first, second = pair
    first.answer = second.answer = Answer(break_after=0, broken_by="reset")
    assert gateway.post().status_code == 502
    assert len(first.received) + len(second.received) == 1


def test_when_all_refuse_the_last_answer_is_the_client_s(pair: Pair) -> None:
    gateway, first, second = pair
    first.answer = second.answer = Answer(status=429, headers={"Retry-After": "7"})
    answer = gateway.post()
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert (len(first.received), len(second.received)) == (1, 1)


def test_the_only_backend_s_refusal_passes_unchanged(gateway: Gateway, upstream: Upstream) -> None:
    upstream.answer = Answer(status=503, body=b'{"detail":"loading"}', headers={"Retry-After": "9"})
    answer = gateway.post()
    assert (answer.status_code, answer.content) == (503, b'{"detail":"loading"}')
    assert answer.headers["retry-after"] == "9"


def test_the_limit_of_tries_holds(
    start_gateway: Callable[..., Gateway], start_upstream: Callable[..., Upstream]
) -> None:
    upstreams = [start_upstream(f"gpu-{k}") for k in range(4)]
    for upstream in upstreams:
        upstream.answer = Answer(status=503)
    gateway = start_gateway([backend(upstream) for upstream in upstreams], {"limits": {"tries": 2}})
    assert gateway.post().status_code == 503
    assert sum(len(upstream.received) for upstream in upstreams) == 2


@pytest.mark.parametrize(
    "difference",
    [{"credential_group": "b"}, {"models": {"llama": "other-name"}}],
    ids=["credentials", "name"],
)
def test_a_retry_stays_where_the_same_bytes_are_understood(
    start_gateway: Callable[..., Gateway],
    start_upstream: Callable[..., Upstream],
    difference: dict[str, object],
) -> None:
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    first.answer = second.answer = Answer(status=503)
    gateway = start_gateway([backend(first), backend(second, **difference)])
    assert gateway.post().status_code == 503
    assert len(first.received) + len(second.received) == 1


@pytest.mark.parametrize("engines", [("vllm", "llamacpp"), ("llamacpp", "vllm")])
def test_a_retry_may_go_to_another_kind_of_engine(
    start_gateway: Callable[..., Gateway], start_upstream: Callable[..., Upstream], engines: tuple[str, str]
) -> None:
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    first.script = [Answer(status=503)]
    gateway = start_gateway(
        [backend(first, engine=engines[0]), backend(second, engine=engines[1], weight=0.01)]
    )
    assert [gateway.post().status_code for _ in range(2)] == [200, 200]
    assert len(first.received) + len(second.received) == 3
    gateway.settle()


def test_the_tries_of_a_request_stand_in_the_access_log(pair: Pair) -> None:
    gateway, first, second = pair
    first.script, second.script = [Answer(status=503)], [Answer(status=503)]
    gateway.post()
    assert gateway.access_log()[0]["tries"] == 2
