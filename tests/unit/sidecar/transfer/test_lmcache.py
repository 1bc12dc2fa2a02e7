"""`sidecar/transfer/lmcache.py`: LMCache's controller, as its documentation describes it."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from sidecar.transfer.calls import Calls
from sidecar.transfer.lmcache import LmcacheController
from sidecar.transfer.port import Move, Moved, TransferError
from tests.unit.sidecar.transfer.conftest import Peer
from tokenweir.config.transfer import BackendTransferConfig

TOKENS = [128000, 849, 21435, 279, 26431, 315, 85748, 6636]


@pytest.fixture
def adapter(peer: Peer, calls: Calls) -> LmcacheController:
    peer.answers["/tokenize"] = lambda _: {"count": 8, "max_model_len": 4096, "tokens": TOKENS}
    peer.answers["/lookup"] = lambda _: {"event_id": "x", "layout_info": {"one": ["LocalCPUBackend", 6]}}
    peer.answers["/move"] = lambda body: {"event_id": "y", "num_tokens": len(body["tokens"])}
    return LmcacheController(calls, peer.url, "LocalDiskBackend")


def asked(peer: Peer, path: str) -> dict[str, Any]:
    return next(body for found, body in peer.asked if found == path)


async def test_it_copies_what_the_old_instance_has_of_the_prompt(
    adapter: LmcacheController, peer: Peer, move: Callable[..., Move]
) -> None:
    assert await adapter.move(move()) == Moved(6)
    assert [path for path, _ in peer.asked] == ["/tokenize", "/lookup", "/move"]
    assert asked(peer, "/lookup") == {"tokens": TOKENS}
    assert asked(peer, "/move") == {
        "old_position": ["one", "LocalCPUBackend"],
        "new_position": ["two", "LocalDiskBackend"],
        "tokens": TOKENS[:6],
        "copy": True,
        "should_copy": True,
    }


async def test_the_old_engine_tells_the_tokens_of_a_chat(
    adapter: LmcacheController, peer: Peer, move: Callable[..., Move]
) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    await adapter.move(move(tools=tools, temperature=0))
    assert asked(peer, "/tokenize") == {
        "model": "engine-model",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": tools,
        "add_generation_prompt": True,
    }
    assert peer.headers[0]["Host"] == "engine.test"
    assert peer.headers[0]["Authorization"] == "Bearer engine-key"
    assert "Authorization" not in peer.headers[1]


async def test_and_of_a_completion_unless_they_are_given(
    adapter: LmcacheController, peer: Peer, move: Callable[..., Move]
) -> None:
    await adapter.move(move("completions"))
    assert asked(peer, "/tokenize") == {"model": "engine-model", "prompt": "hi"}
    peer.asked.clear()
    for prompt in ([5, 6, 7], [[5, 6, 7]]):
        await adapter.move(move("completions", prompt=prompt))
        assert peer.asked[0] == ("/lookup", {"tokens": [5, 6, 7]})
        peer.asked.clear()


async def test_what_the_new_instance_has_already_is_not_moved(
    adapter: LmcacheController, peer: Peer, move: Callable[..., Move]
) -> None:
    layout = {"one": ["LocalCPUBackend", 6], "two": ["LocalCPUBackend", 6]}
    peer.answers["/lookup"] = lambda _: {"event_id": "x", "layout_info": layout}
    assert await adapter.move(move()) == Moved(6)
    assert [path for path, _ in peer.asked] == ["/tokenize", "/lookup"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (("/tokenize", 404), "/tokenize answers 404"),
        (("/tokenize", {"count": 0, "tokens": []}), "does not tell the prompt's tokens"),
        (("/lookup", {"event_id": "x", "layout_info": {}}), "nothing of the prompt at one"),
        (("/lookup", {"event_id": "x", "layout_info": {"one": "?"}}), "nothing of the prompt at one"),
        (("/move", 500), "/move answers 500"),
        (("/move", {"event_id": "y", "num_tokens": 0}), "moved nothing from one to two"),
    ],
)
async def test_what_goes_wrong_is_told(
    adapter: LmcacheController, peer: Peer, move: Callable[..., Move], wrong: tuple[str, Any], says: str
) -> None:
    path, answer = wrong
    peer.answers[path] = lambda _: answer
    with pytest.raises(TransferError, match=re.escape(says)):
        await adapter.move(move())


async def test_several_prompts_are_not_one_cache(
    adapter: LmcacheController, move: Callable[..., Move]
) -> None:
    with pytest.raises(TransferError, match="several prompts"):
        await adapter.move(move("completions", prompt=["a", "b"]))


async def test_a_controller_that_is_not_there_is_told(
    calls: Calls, peer: Peer, move: Callable[..., Move]
) -> None:
    peer.answers["/tokenize"] = lambda _: {"tokens": TOKENS}
    with pytest.raises(TransferError, match=r"127\.0\.0\.1:1/lookup"):
        await LmcacheController(calls, "http://127.0.0.1:1", "LocalCPUBackend").move(move())


async def test_a_backend_without_an_instance_is_named(
    adapter: LmcacheController, move: Callable[..., Move]
) -> None:
    given = move()
    with pytest.raises(TransferError, match=r"backend gpu-b has no `transfer: \{instance"):
        await adapter.move(replace(given, target=replace(given.target, config=BackendTransferConfig())))
