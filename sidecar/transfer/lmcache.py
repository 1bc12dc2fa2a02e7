"""`lmcache`: LMCache's controller moves the cache between the LMCache instances of two vLLM engines.

The controller finds caches by tokens, so the old engine is asked for the prompt's (vLLM's `/tokenize`).
`/lookup` tells which instance holds how many of them and where, `/move` copies them. The engines must share a
`PYTHONHASHSEED`, and need P2P (NIXL) for it (docs.lmcache.ai, "LMCache Controller", lookup and move).
"""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from sidecar.transfer.calls import Calls
from sidecar.transfer.port import End, Move, Moved, TransferError

CHAT: Final = (
    "messages",
    "tools",
    "chat_template",
    "chat_template_kwargs",
    "add_generation_prompt",
    "continue_final_message",
    "add_special_tokens",
)
"""Members of a chat request on which its tokens depend."""


class LmcacheController:
    """The controller at `url`; caches go to `location` of an instance."""

    def __init__(self, calls: Calls, url: str, location: str) -> None:
        self._calls, self._url, self._location = calls, url, location

    async def move(self, move: Move) -> Moved:
        """Copy what the old instance has. Raises TransferError."""
        source, target = _instance(move.source), _instance(move.target)
        tokens = await self._tokens(move)
        found = (await self._calls.service(self._url, "/lookup", {"tokens": tokens})).get("layout_info")
        layout = found if isinstance(found, dict) else {}
        location, matched = _held(layout, source)
        if matched == 0:
            raise TransferError(f"LMCache has nothing of the prompt at {source}")
        if _held(layout, target)[1] >= matched:
            return Moved(matched)
        copying = True
        answer = await self._calls.service(
            self._url,
            "/move",
            {
                "old_position": [source, location],
                "new_position": [target, self._location],
                "tokens": tokens[:matched],
                "copy": copying,
                "should_copy": copying,  # its name in newer controllers
            },
        )
        moved = answer.get("num_tokens")
        if not isinstance(moved, int) or moved <= 0:
            raise TransferError(f"LMCache moved nothing from {source} to {target}")
        return Moved(moved)

    async def _tokens(self, move: Move) -> list[int]:
        request = move.request()
        body: dict[str, Any] = {"model": move.model}
        if move.kind == "chat":
            body |= {"add_generation_prompt": True} | {
                name: request[name] for name in CHAT if name in request
            }
        else:
            prompt = request.get("prompt")
            if isinstance(prompt, list) and len(prompt) == 1 and not _numbers(prompt):
                prompt = prompt[0]
            if _numbers(prompt):
                return prompt
            if not isinstance(prompt, str):
                raise TransferError("the request has several prompts")
            body["prompt"] = prompt
            if "add_special_tokens" in request:
                body["add_special_tokens"] = request["add_special_tokens"]
        tokens = (await self._calls.engine(move.source.origin, "/tokenize", body)).get("tokens")
        if not _numbers(tokens):
            raise TransferError(f"{move.source.id} does not tell the prompt's tokens")
        return tokens


def _numbers(value: Any) -> TypeGuard[list[int]]:
    return isinstance(value, list) and bool(value) and all(type(item) is int for item in value)


def _instance(end: End) -> str:
    if end.config.instance is None:
        raise TransferError(f"backend {end.id} has no `transfer: {{instance: ...}}`")
    return end.config.instance


def _held(layout: dict[str, Any], instance: str) -> tuple[str, int]:
    """Where an instance has the prompt's beginning, and how many tokens of it."""
    told = layout.get(instance)
    if isinstance(told, list) and len(told) == 2 and isinstance(told[0], str) and isinstance(told[1], int):
        return told[0], max(told[1], 0)
    return "", 0
