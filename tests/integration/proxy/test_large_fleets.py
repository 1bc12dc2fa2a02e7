"""A gateway before a thousand backends, of which one is there."""

from __future__ import annotations

import time
from collections.abc import Callable

import httpx

from tests.integration.proxy.gateway import Gateway, backend
from tests.integration.servers import wait_until
from tests.integration.upstream import Upstream
from tokenweir.contract.records import Backend, State

MANY = 1000


def absent(number: int, state: State = State.DOWN) -> Backend:
    """A backend that nobody serves."""
    host = f"127.9.{number // 250}.{number % 250 + 1}"
    return Backend(
        id=f"gpu-{number:04d}",
        host=host,
        port=9,
        host_header=f"{host}:9",
        models={"llama": "llama"},
        state=state,
        engine="vllm",
        cost={"prefill": 0.05, "base": 10, "per_sequence": 0.1, "per_kv_token": 0.0001},
    )


def test_the_one_that_serves_is_found_and_changes_are_followed(
    start_gateway: Callable[..., Gateway], start_upstream: Callable[..., Upstream]
) -> None:
    upstream = start_upstream("here")
    others = [absent(number) for number in range(MANY - 1)]
    gateway = start_gateway([*others, backend(upstream)], limits={"connections": 1024})
    assert gateway.post().headers["X-Tokenweir-Backend"] == "here"
    gateway.publish(*others[:500], backend(upstream), *others[500:])
    assert gateway.post().headers["X-Tokenweir-Backend"] == "here"
    gateway.publish(*others, backend(upstream, state=State.DRAINING))
    wait_until(lambda: gateway.post().status_code == 503, what="the drain")


def test_requests_are_answered_while_snapshots_of_a_thousand_come(
    start_gateway: Callable[..., Gateway], start_upstream: Callable[..., Upstream]
) -> None:
    upstream = start_upstream("here")
    others = [absent(number) for number in range(MANY - 1)]
    gateway = start_gateway([*others, backend(upstream)])
    answers: list[httpx.Response] = []
    end = time.monotonic() + 2
    while time.monotonic() < end:
        gateway.publish(*others, backend(upstream), wait=False)
        answers += [gateway.post() for _ in range(5)]
    gateway.wait_for("snapshot", gateway.sequence)
    assert {answer.status_code for answer in answers} == {200}
    gateway.settle()
