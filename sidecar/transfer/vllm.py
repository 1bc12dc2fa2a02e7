"""`vllm`: the old engine hands the cache on as a prefill instance of vLLM's disaggregated serving does.

It is sent the request for one token with `do_remote_decode`; what it does not have of the prompt it computes.
The `kv_transfer_params` of its answer tell where the blocks are, and the gateway puts them into the request:
the new engine fetches the blocks itself (docs.vllm.ai, "NixlConnector Usage Guide"; both need a connector, as
`{"kv_connector": "NixlConnector", "kv_role": "kv_both"}`). The old engine keeps the blocks until they are
fetched, or for `VLLM_NIXL_ABORT_REQUEST_TIMEOUT`.
"""

from __future__ import annotations

import json
from typing import Any, Final

from sidecar.transfer.calls import Calls
from sidecar.transfer.port import Move, Moved, TransferError

PATHS: Final = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}
HAND_ON: Final[dict[str, Any]] = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}
DROPPED: Final = ("stream_options", "min_tokens", "best_of", "prompt_logprobs", "n")
"""Members that ask for more than one token, or for a stream."""


class RemotePrefill:
    """Lets old engines hand on what they have."""

    def __init__(self, calls: Calls) -> None:
        self._calls = calls

    async def move(self, move: Move) -> Moved:
        """Have the old engine offer its blocks. Raises TransferError."""
        answer = await self._calls.engine(move.source.origin, PATHS[move.kind], prefill_of(move))
        parameters = answer.get("kv_transfer_params")
        if not isinstance(parameters, dict) or not parameters.get("do_remote_prefill"):
            raise TransferError(f"{move.source.id} offers no blocks: has it a kv_connector that gives them?")
        usage = answer.get("usage")
        tokens = usage.get("prompt_tokens") if isinstance(usage, dict) else None
        return Moved(
            tokens if isinstance(tokens, int) and tokens > 0 else move.tokens,
            parameters=json.dumps(parameters, separators=(",", ":")),
        )


def prefill_of(move: Move) -> dict[str, Any]:
    """The request that makes an engine compute the prompt and offer its blocks. Raises TransferError."""
    request = {name: value for name, value in move.request().items() if name not in DROPPED}
    request |= {"stream": False, "max_tokens": 1, "kv_transfer_params": HAND_ON}
    if "max_completion_tokens" in request:
        request["max_completion_tokens"] = 1
    return request
