"""An engine's cache as its agent sees it. Tensors are torch's; every method is called in the event loop."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Protocol


class KvStore(Protocol):
    """The cache, in blocks of equal size."""

    block_tokens: int
    """Tokens of a block."""
    block_bytes: int
    """Bytes of a block's keys and values, all layers together."""

    def blocks(self, kind: str, request: Mapping[str, Any]) -> Sequence[Hashable]:
        """Names of the full blocks of a request's prompt, each standing for all up to its end. `kind`: `chat`
        or `completions`. Raises ValueError for what is no such request."""

    def held(self, names: Sequence[Hashable]) -> int:
        """How many of the leading blocks are in the cache."""

    def read(self, names: Sequence[Hashable]) -> Any:
        """The blocks, as a tensor of bytes: one row a block."""

    def write(self, names: Sequence[Hashable], first: int, blocks: Any) -> int:
        """Take blocks in: the rows are those of `names` from `first` on. Returns how many leading blocks are
        in the cache then."""
