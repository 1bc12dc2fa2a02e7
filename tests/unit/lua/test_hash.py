"""`lua/tokenweir/core/hash.lua`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tokenweir.luavm import new_runtime

MASK = 2**64 - 1
P1, P2, P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P4, P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5


def rol(x: int, bits: int) -> int:
    return (x << bits | x >> (64 - bits)) & MASK


def mix(lane: int, word: int) -> int:
    return rol((lane + word * P2) & MASK, 31) * P1 & MASK


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 by its specification, as an oracle."""
    lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
    stripes = len(data) // 32 * 32
    for i in range(0, stripes, 8):
        lanes[i // 8 % 4] = mix(lanes[i // 8 % 4], int.from_bytes(data[i : i + 8], "little"))
    if stripes:
        h = sum(rol(lane, bits) for lane, bits in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            h = ((h ^ mix(0, lane)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + len(data)) & MASK
    i = stripes
    while i + 8 <= len(data):
        h = (rol(h ^ mix(0, int.from_bytes(data[i : i + 8], "little")), 27) * P1 + P4) & MASK
        i += 8
    if i + 4 <= len(data):
        h = (rol(h ^ int.from_bytes(data[i : i + 4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        i += 4
    for byte in data[i:]:
        h = rol(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


@pytest.fixture(scope="module")
def digest() -> Callable[[bytes, int], bytes]:
    made: Any = new_runtime().execute(b"""
        local hash = require "tokenweir.core.hash"
        return function(s, seed) return hash.hex(hash.string(s, seed)) end
    """)
    return made


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"", b"ef46db3751d8e999"),
        (b"a", b"d24ec4f1a98c6e5b"),
        (b"abc", b"44bc2cf5ad770999"),
        (b"Nobody inspects the spammish repetition", b"fbcea83c8a378bf1"),
    ],
)
def test_it_gives_the_published_values_of_xxh64(
    digest: Callable[..., bytes], text: bytes, expected: bytes
) -> None:
    assert digest(text, 0) == expected


@settings(max_examples=200, deadline=None)
@given(text=st.binary(max_size=300), seed=st.integers(0, 2**40))
def test_it_agrees_with_the_specification_at_every_length(
    digest: Callable[..., bytes], text: bytes, seed: int
) -> None:
    assert digest(text, seed) == f"{xxh64(text, seed):016x}".encode()
