"""Real tensors that move between two engines' processes when a session moves; a prefill where they do not."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.servers import wait_until
from tests.integration.transfer.conftest import KV_BYTES, Engine, Stack, cached

pytestmark = pytest.mark.timeout(300)  # torch alone takes seconds to load, on a busy machine many
StartEngines = Callable[..., list[Engine]]
StartStack = Callable[..., Stack]
BLOCK = 16


def agents(engines: list[Engine]) -> dict[str, dict[str, str]]:
    return {engine.name: {"kv_agent": engine.agent} for engine in engines}


def in_background(stack: Stack, body: dict[str, Any]) -> tuple[threading.Thread, list[Any]]:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(stack.ask(body)))
    thread.start()
    return thread, answers


def test_the_request_after_a_move_finds_its_prompt_cached(
    start_engines: StartEngines, start_stack: StartStack
) -> None:
    engines = start_engines(kv=True)
    stack = start_stack(engines, {"adapter": "agent", "bandwidth": "100MiB"}, agents(engines))
    home, other, body = stack.begin("Of tensors")
    mine = home.digests(body)
    assert len(mine) > 300
    assert other.digests(body) == []
    stack.drain(home)
    name, answer = stack.ask(body)
    assert name == other.name
    # All but what is new: the last question, and the end of a block.
    prompt = answer["usage"]["prompt_tokens"]
    assert prompt - 2 * BLOCK - 8 <= cached(answer) < prompt
    assert other.digests(body)[: len(mine)] == mine
    moved = len(mine) * BLOCK
    assert (home.counts()["sent"], home.counts()["bytes_out"]) == (1, moved * KV_BYTES)
    assert (other.counts()["fetched"], other.counts()["bytes_in"]) == (1, moved * KV_BYTES)
    stack.outcomes(done=1)
    stack.gateway.expect(moved, "tokenweir_kv_transfer_tokens_total")
    stack.gateway.expect(moved * KV_BYTES, "tokenweir_kv_transfer_bytes_total")
    wait_until(
        lambda: stack.gateway.metric("tokenweir_kv_transfer_found_tokens_total") >= cached(answer) - 1,
        what="the tokens that were found",
    )
    assert stack.ask(body)[0] == other.name
    stack.outcomes(done=1)


def test_an_engine_that_hands_its_cache_on_by_parameters_is_fetched_from(
    start_engines: StartEngines, start_stack: StartStack
) -> None:
    engines = start_engines(kv=True)
    stack = start_stack(engines, {"adapter": "vllm", "bandwidth": "100MiB"}, {})
    home, other, body = stack.begin("Of parameters")
    stack.drain(home)
    name, answer = stack.ask(body)
    assert name == other.name
    # The old engine has computed the rest as well.
    prompt = answer["usage"]["prompt_tokens"]
    assert prompt - BLOCK <= cached(answer) < prompt
    assert other.digests(body)[:-1] == home.digests(body)[: len(other.digests(body)) - 1]
    stack.outcomes(done=1)
    stack.gateway.expect(prompt, "tokenweir_kv_transfer_tokens_total")


def test_an_agent_that_is_killed_in_the_middle_costs_a_prefill(
    start_engines: StartEngines, start_stack: StartStack
) -> None:
    engines = start_engines(kv=True)
    stack = start_stack(engines, {"adapter": "agent", "bandwidth": "100MiB"}, agents(engines))
    home, other, body = stack.begin("Of death")
    stack.drain(home)
    home.fault("crash_in_transfer")
    name, answer = stack.ask(body)
    assert home.process.wait(30) == 70
    assert (name, cached(answer)) == (other.name, 0)
    stack.outcomes(failed=1)
    assert other.counts()["failed"] == 1


def test_an_agent_that_freezes_in_the_middle_is_not_waited_for_longer_than_the_prefill(
    start_engines: StartEngines, start_stack: StartStack
) -> None:
    # 7 MB at 1 MB a second would take some seven seconds.
    engines = start_engines("--kv-pace", "1000000", kv=True)
    transfer = {"adapter": "agent", "bandwidth": "100MiB", "limit": "60s"}
    stack = start_stack(engines, transfer, agents(engines))
    home, other, body = stack.begin("Of ice")
    stack.drain(home)
    thread, answers = in_background(stack, body)
    wait_until(lambda: other.counts()["fetching"] == 1, what="a transfer in the middle")
    home.signal(signal.SIGSTOP)
    thread.join(60)
    ((name, answer),) = answers
    assert (name, cached(answer)) == (other.name, 0)
    stack.outcomes(late=1)
    # A prefill of 7,000 tokens takes a T4 two seconds.
    assert stack.waited("late") < 6
