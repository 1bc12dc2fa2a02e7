"""A cache of numbered blocks, which stand for a prompt's: the request says how many."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch


class Cache:
    """As an agent sees an engine's (`kv_agent/store.py`)."""

    def __init__(self, block_bytes: int, filled: int = 0) -> None:
        self.block_tokens, self.block_bytes = 16, block_bytes
        self.rows = torch.randint(0, 256, (filled, block_bytes), dtype=torch.uint8)

    def blocks(self, kind: str, request: Mapping[str, Any]) -> Sequence[Hashable]:
        """The numbers of the blocks."""
        return range(int(request["blocks"]))

    def held(self, names: Sequence[Hashable]) -> int:
        """How many of them are there."""
        return min(len(names), len(self.rows))

    def read(self, names: Sequence[Hashable]) -> Any:
        """The blocks: they are a row's beginning."""
        return self.rows[: len(names)]

    def write(self, names: Sequence[Hashable], first: int, blocks: Any) -> int:
        """Take them in."""
        self.rows = blocks
        return len(blocks)

    def forget(self) -> None:
        """Be empty again."""
        self.rows = torch.empty((0, self.block_bytes), dtype=torch.uint8)
