"""Prompts that bring engines down: refused after two crashes, and nobody else with them."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Answer, Upstream, held

Start = Callable[..., Gateway]
Pair = tuple[Gateway, Upstream, Upstream]

APART = 1.1
"""Seconds that an engine takes at least to come back: what breaks off within one second is one crash."""

POISON = {"model": "llama", "messages": [{"role": "user", "content": "poison"}]}


@pytest.fixture
def gateway(start_gateway: Start, upstream: Upstream) -> Gateway:
    """A gateway before one backend, with little memory for bodies."""
    return start_gateway(
        [backend(upstream, models={"llama": "l", "qwen": "q"})],
        {"limits": {"quarantine_ms": 60_000}, "models": [{"name": "llama", "aliases": ["small"]}]},
        limits={"body_memory": "16KiB"},
    )


def crash(gateway: Gateway, upstream: Upstream, body: Any, path: str = "/v1/chat/completions") -> None:
    """The engine dies of a request. Nobody else asks; only the sidecar sees the closed port."""
    models = {"llama": "l", "qwen": "q"}
    upstream.answer = Answer(break_after=0, broken_by="reset")
    assert gateway.post(path, body=body).status_code == 502
    gateway.publish(backend(upstream, models=models, scrape_failures=1, refused=True))
    gateway.publish(backend(upstream, models=models, scrape_failures=2, refused=True, state="down"))
    upstream.answer = Answer()
    time.sleep(APART)
    gateway.publish(backend(upstream, models=models))


def test_a_prompt_that_met_two_crashes_is_refused_though_nobody_else_asks(
    gateway: Gateway, upstream: Upstream
) -> None:
    crash(gateway, upstream, POISON)
    assert gateway.post(body=POISON).status_code == 200, "one crash is no proof"
    crash(gateway, upstream, {**POISON, "temperature": 0})
    refused = gateway.post(body={**POISON, "model": "small", "temperature": 1})
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "prompt_quarantined"
    assert gateway.post().status_code == 200
    assert gateway.post(body={**POISON, "model": "qwen"}).status_code == 200, "another model may cope with it"
    gateway.expect(1, "tokenweir_quarantined_total")


def test_a_prompt_in_a_file_is_remembered_too(gateway: Gateway, upstream: Upstream) -> None:
    long = {"model": "llama", "messages": [{"role": "user", "content": "poison " * 10_000}]}
    for _ in range(2):
        crash(gateway, upstream, long)
    assert gateway.post(body=long).status_code == 422
    assert gateway.post().status_code == 200


def test_other_json_is_told_apart_by_all_of_it(gateway: Gateway, upstream: Upstream) -> None:
    for _ in range(2):
        crash(gateway, upstream, {"model": "llama", "query": "poison"}, "/v1/rerank")
    assert gateway.post("/v1/rerank", body={"model": "llama", "query": "poison"}).status_code == 422
    assert gateway.post("/v1/rerank", body={"model": "llama", "query": "other"}).status_code == 200
    assert gateway.post("/v1/score", body={"model": "llama", "text": "a"}).status_code == 200


def test_requests_without_a_prompt_are_never_in_quarantine(gateway: Gateway, upstream: Upstream) -> None:
    for _ in range(2):
        crash(gateway, upstream, {"model": "llama"})
    assert gateway.post(body={"model": "llama"}).status_code == 200
    assert gateway.post().status_code == 200


def test_an_engine_s_own_error_before_it_dies_counts_as_the_crash(
    gateway: Gateway, upstream: Upstream
) -> None:
    models = {"llama": "l", "qwen": "q"}
    for _ in range(2):
        upstream.answer = Answer(status=500)
        assert gateway.post(body=POISON).status_code == 500
        gateway.publish(backend(upstream, models=models, refused=True))
        time.sleep(APART)
        gateway.publish(backend(upstream, models=models))
    upstream.answer = Answer()
    assert gateway.post(body=POISON).status_code == 422


def test_requests_that_meet_a_closed_port_tell_of_the_crash_too(
    start_gateway: Start, start_upstream: Callable[..., Upstream]
) -> None:
    first, second = start_upstream("gpu-a"), start_upstream("gpu-b")
    gateway = start_gateway(
        [backend(first), backend(second)], {"limits": {"quarantine_ms": 60_000}}, workers=1
    )

    def crash(upstream: Upstream, other: Upstream) -> None:
        gateway.publish(backend(upstream), backend(other, state="down"))
        upstream.answer = Answer(permits=held())
        connection = gateway.open(messages=POISON["messages"])
        wait_until(lambda: upstream.received, what="the request")
        upstream.crash()
        assert connection.getresponse().status == 502
        assert gateway.post(user="finds the port closed").status_code == 503

    crash(first, second)
    crash(second, first)
    first.restart()
    first.answer = Answer()
    gateway.publish(backend(first), backend(second, state="down"))
    refused = gateway.post(messages=POISON["messages"], temperature=1)
    assert refused.status_code == 422
    assert refused.json()["error"]["code"] == "prompt_quarantined"
    assert gateway.post().status_code == 200
    gateway.expect(1, "tokenweir_quarantined_total")


def test_one_crash_counts_once_for_a_prompt_that_many_clients_send(
    start_gateway: Start, upstream: Upstream
) -> None:
    gateway = start_gateway(
        [backend(upstream)], {"limits": {"quarantine_ms": 60_000}, "health": {"failures": 100}}
    )
    upstream.answer = Answer(permits=held())
    connections = [gateway.open(messages=POISON["messages"]) for _ in range(4)]
    wait_until(lambda: len(upstream.received) == 4, what="the requests")
    upstream.crash()
    assert [connection.getresponse().status for connection in connections] == [502] * 4
    gateway.publish(backend(upstream, scrape_failures=1, refused=True))
    upstream.restart()
    upstream.answer = Answer()
    gateway.publish(backend(upstream))
    assert gateway.post(messages=POISON["messages"]).status_code == 200


def test_a_stream_that_is_merely_cut_twice_is_not_quarantined(pair: Pair) -> None:
    gateway, first, second = pair
    for _ in range(3):
        first.script = [Answer(break_after=1)]
        second.script = [Answer(break_after=1)]
        gateway.post(stream=True)
    first.script, second.script = [], []
    assert gateway.post(stream=True).status_code == 200
