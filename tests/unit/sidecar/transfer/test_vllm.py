"""`sidecar/transfer/vllm.py`: the old engine as a prefill instance of disaggregated serving."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from sidecar.transfer.calls import Calls
from sidecar.transfer.port import Move, Moved, TransferError
from sidecar.transfer.vllm import HAND_ON, RemotePrefill
from tests.unit.sidecar.transfer.conftest import Peer

HANDLE = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [1, 2, 3],
    "remote_engine_id": "e-1",
    "remote_host": "10.0.0.11",
    "remote_port": 5600,
}


async def test_it_asks_for_one_token_and_hands_the_handle_on(
    peer: Peer, calls: Calls, move: Callable[..., Move]
) -> None:
    peer.answers["/v1/chat/completions"] = lambda _: {
        "usage": {"prompt_tokens": 1234, "completion_tokens": 1},
        "kv_transfer_params": HANDLE,
    }
    given = move(stream_options={"include_usage": True}, max_completion_tokens=500, n=3, min_tokens=4)
    moved = await RemotePrefill(calls).move(given)
    assert (moved.tokens, moved.bytes, json.loads(moved.parameters)) == (1234, 0, HANDLE)
    (path, body), headers = peer.asked[0], peer.headers[0]
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "engine-model",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": False,
        "max_tokens": 1,
        "max_completion_tokens": 1,
        "kv_transfer_params": HAND_ON,
    }
    assert headers["Authorization"] == "Bearer engine-key"


async def test_a_completion_goes_to_its_own_path(peer: Peer, calls: Calls, move: Callable[..., Move]) -> None:
    peer.answers["/v1/completions"] = lambda _: {"kv_transfer_params": HANDLE}
    assert await RemotePrefill(calls).move(move("completions")) == Moved(
        1000, parameters=json.dumps(HANDLE, separators=(",", ":"))
    )


@pytest.mark.parametrize("parameters", [None, {}, {"do_remote_prefill": False}])
async def test_an_engine_that_offers_nothing_is_told(
    peer: Peer, calls: Calls, move: Callable[..., Move], parameters: object
) -> None:
    peer.answers["/v1/chat/completions"] = lambda _: {"kv_transfer_params": parameters}
    with pytest.raises(TransferError, match="gpu-a offers no blocks"):
        await RemotePrefill(calls).move(move())
