"""Real tensors for the blocks of the prefix cache, so that an agent (`kv_agent/`) can move them.

Each block that the engine fills has random bytes of its own, which stand for its keys and values: whether a
block is the one that another server computed shows by its digest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import torch

from emulator import tokens
from emulator.engine import Engine
from emulator.openai import prompt
from emulator.openai.errors import ApiError


class KvTensors:
    """The tensors of one engine. `advance` brings the engine up to now."""

    def __init__(self, engine: Engine, kv_bytes: int, advance: Callable[[], None]) -> None:
        self._engine, self._advance = engine, advance
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._blocks: dict[Hashable, Any] = {}
        self.block_tokens = engine.limits.hash_tokens
        self.block_bytes = self.block_tokens * kv_bytes
        engine.memory.watch = self

    # What the engine's memory tells

    def filled(self, key: Hashable) -> None:
        """A block was computed."""
        self._blocks[key] = torch.randint(0, 256, (self.block_bytes,), dtype=torch.uint8, device=self._device)

    def lost(self, key: Hashable) -> None:
        """Its memory was given up."""
        self._blocks.pop(key, None)

    # What the agent asks

    def blocks(self, kind: str, request: Mapping[str, Any]) -> Sequence[Hashable]:
        """Names of a prompt's full blocks. Raises ValueError."""
        return tokens.block_hashes(text_of(kind, request), self.block_tokens)

    def held(self, names: Sequence[Hashable]) -> int:
        """How many of the leading blocks are in memory."""
        self._advance()
        return self._engine.memory.cache.match(names, len(names))

    def read(self, names: Sequence[Hashable]) -> Any:
        """Their tensors, one row a block."""
        return torch.stack([self._blocks[name] for name in names])

    def write(self, names: Sequence[Hashable], first: int, blocks: Any) -> int:
        """Take blocks in; how many of the leading ones are in memory then."""
        self._advance()
        held = self._engine.memory.adopt(names[: first + len(blocks)])
        for name, row in zip(names[first:held], blocks, strict=False):
            self._blocks[name] = row.clone()
        return held

    def digests(self, kind: str, request: Mapping[str, Any]) -> list[str]:
        """What tells the blocks apart that are in memory of a request's prompt. Raises ValueError."""
        names = self.blocks(kind, request)
        rows = (bytes(self._blocks[name].tolist()) for name in names[: self.held(names)])
        return [hashlib.blake2b(row, digest_size=8).hexdigest() for row in rows]


def text_of(kind: str, request: Mapping[str, Any]) -> str:
    """What the model reads of a request. Raises ValueError."""
    try:
        if kind == "chat":
            return prompt.chat(request.get("messages"), request.get("tools")).text
        if kind == "completions":
            (only,) = prompt.plain(request.get("prompt"), "prompt")
            return only.text
    except ApiError as error:
        raise ValueError(str(error)) from None
    raise ValueError(f"{kind!r} is neither chat nor completions")
