"""Tensors that are kept of prompts, tokens told, and caches handed over by vLLM's parameters."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from emulator.app import listen
from emulator.handover import MEMBER, Handover
from kv_agent.agent import Agent
from kv_agent.server import make_app
from tests.integration.emulator.conftest import Running

Start = Callable[..., Awaitable[Running]]
CHAT = {"messages": [{"role": "user", "content": "All work and no play. " * 40}]}
HAND_ON = {"do_remote_decode": True, "do_remote_prefill": False}


@pytest.fixture
async def pair(start: Start) -> AsyncIterator[tuple[Running, Running]]:
    """Two servers that keep tensors, with their agents."""
    runners: list[web.AppRunner] = []
    servers = []
    for _ in range(2):
        running = await start(kv_bytes=8)
        assert running.server.tensors
        agent = Agent(running.server.tensors, "127.0.0.1")
        runners.append(await listen(make_app(agent, None), "127.0.0.1", 0))
        running.server.handover = Handover(agent, "127.0.0.1", runners[-1].addresses[0][1])
        servers.append(running)
    yield servers[0], servers[1]
    for runner in runners:
        await runner.cleanup()


async def digests(running: Running, **request: Any) -> list[str]:
    answer = await running.client.post("/admin/kv", json={"kind": "chat", "request": request})
    return list(answer.raise_for_status().json()["digests"])


async def test_each_full_block_of_a_prompt_has_a_tensor_of_its_own(pair: tuple[Running, Running]) -> None:
    one, other = pair
    prompt = (await one.chat(**CHAT)).json()["usage"]["prompt_tokens"]
    found = await digests(one, **CHAT)
    assert len(found) == len(set(found)) == prompt // 16
    assert await digests(other, **CHAT) == []


async def test_a_cache_is_handed_over_by_parameters(pair: tuple[Running, Running]) -> None:
    one, other = pair
    answer = (await one.chat(1, **CHAT, kv_transfer_params=HAND_ON)).json()
    handle = answer[MEMBER]
    assert (handle["do_remote_prefill"], handle["remote_host"]) == (True, "127.0.0.1")
    usage = (await other.chat(**CHAT, kv_transfer_params=handle)).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] >= usage["prompt_tokens"] - 16
    assert await digests(other, **CHAT) == await digests(one, **CHAT)


async def test_no_more_is_found_than_was_handed_over(pair: tuple[Running, Running]) -> None:
    one, other = pair
    await one.chat(1, **CHAT)
    held = len(await digests(one, **CHAT))
    longer = {"messages": [*CHAT["messages"], {"role": "user", "content": "And on. " * 200}]}
    handle = {"do_remote_prefill": True, "remote_host": "127.0.0.1"}
    assert one.server.handover
    handle["remote_port"] = one.server.handover.port
    usage = (await other.chat(**longer, kv_transfer_params=handle)).json()["usage"]
    assert held * 16 - 32 <= usage["prompt_tokens_details"]["cached_tokens"] <= held * 16


async def test_what_cannot_be_fetched_is_computed(pair: tuple[Running, Running]) -> None:
    handle = {"do_remote_prefill": True, "remote_host": "127.0.0.1", "remote_port": 1}
    answer = await pair[1].chat(**CHAT, kv_transfer_params=handle)
    assert answer.status_code == 200
    assert answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


async def test_without_tensors_nothing_is_offered(running: Running) -> None:
    answer = await running.chat(1, kv_transfer_params=HAND_ON)
    assert MEMBER not in answer.json()
    assert (await running.client.post("/admin/kv", json={})).status_code == 404


@pytest.mark.parametrize(
    "body", [{}, {"kind": "chat"}, {"kind": "embeddings", "request": {}}, {"kind": "chat", "request": {}}]
)
async def test_digests_of_what_is_no_prompt_are_refused(
    pair: tuple[Running, Running], body: dict[str, Any]
) -> None:
    assert (await pair[0].client.post("/admin/kv", json=body)).status_code == 400


async def test_tokens_are_told_as_vllm_tells_them(running: Running) -> None:
    model = {"model": "llama-3-8b"}
    told = (await running.client.post("/tokenize", json={**model, "prompt": "abcdefgh"})).json()
    assert told == {"count": 2, "max_model_len": 8192, "tokens": [0x64636261, 0x68676665]}
    chat = (await running.client.post("/tokenize", json={**model, **CHAT})).json()
    asked = (await running.chat(**CHAT)).json()["usage"]["prompt_tokens"]
    assert abs(chat["count"] - asked) <= 1
