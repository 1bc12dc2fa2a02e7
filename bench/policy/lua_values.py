"""What crosses from Python to the gateway's Lua: tables, hashes of sessions, the beginnings of prompts."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from hashlib import blake2b
from typing import Any

HASH_MASK = 2**52 - 1
BLOCKS_OF_A_SIZE = 16


@lru_cache(maxsize=4096)
def block_ends(count: int) -> tuple[int, ...]:
    """Of so many equal blocks the ends of those beginnings that are hashed: every block at first, later every
    fourth, sixteenth and sixty-fourth (`core/body/prefix_blocks.lua`)."""
    ends: list[int] = []
    at, step = 0, 1
    while at + step <= count and len(ends) < 4 * BLOCKS_OF_A_SIZE:
        at += step
        ends.append(at)
        if len(ends) % BLOCKS_OF_A_SIZE == 0:
            step *= 4
    return tuple(ends)


def block_hash(content: Hashable) -> int:
    """The hash of a beginning, as far as a double holds it."""
    return hash(content) & HASH_MASK


def session_halves(session: Hashable) -> tuple[int | None, int | None]:
    """The two halves of a session's hash."""
    if session is None:
        return None, None
    digest = blake2b(repr(session).encode(), digest_size=8).digest()
    return tuple(int.from_bytes(part, "little", signed=True) for part in (digest[:4], digest[4:]))  # type: ignore[return-value]


def to_lua(runtime: Any, value: Any) -> Any:
    """A JSON-like value as Lua tables."""
    if isinstance(value, dict):
        return runtime.table_from({k.encode(): to_lua(runtime, v) for k, v in value.items() if v is not None})
    if isinstance(value, list):
        return runtime.table_from([to_lua(runtime, item) for item in value])
    return value.encode() if isinstance(value, str) else value
