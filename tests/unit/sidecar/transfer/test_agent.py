"""`sidecar/transfer/agent.py`: the agents of the engines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from sidecar.transfer.agent import KvAgents
from sidecar.transfer.calls import Calls
from sidecar.transfer.port import Move, Moved, TransferError
from tests.unit.sidecar.transfer.conftest import Peer
from tokenweir.config.transfer import BackendTransferConfig


async def test_the_agent_of_the_new_backend_is_told_where_to_fetch(
    peer: Peer, calls: Calls, move: Callable[..., Move]
) -> None:
    peer.answers["/kv/fetch"] = lambda _: {"tokens": 960, "bytes": 4096}
    assert await KvAgents(calls, "a-token-of-theirs").move(move("completions")) == Moved(960, 4096)
    assert peer.asked == [
        (
            "/kv/fetch",
            {
                "source": peer.url,
                "kind": "completions",
                "request": {"model": "engine-model", "prompt": "hi"},
                "timeout_ms": 500,
            },
        )
    ]
    assert peer.headers[0]["Authorization"] == "Bearer a-token-of-theirs"


async def test_what_goes_wrong_is_told(peer: Peer, calls: Calls, move: Callable[..., Move]) -> None:
    adapter, given = KvAgents(calls, None), move()
    with pytest.raises(TransferError, match="/kv/fetch answers 404"):
        await adapter.move(given)
    peer.answers["/kv/fetch"] = lambda _: {"tokens": 0, "bytes": 0}
    with pytest.raises(TransferError, match="gpu-a has nothing of the prompt"):
        await adapter.move(given)
    with pytest.raises(TransferError, match=r"backend gpu-a has no `transfer: \{kv_agent"):
        await adapter.move(replace(given, source=replace(given.source, config=BackendTransferConfig())))
