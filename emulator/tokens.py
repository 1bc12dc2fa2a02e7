"""Tokens of the emulated model: every four bytes of text are one.

That is close to what real tokenisers make of English, needs no vocabulary, and lets a next turn's prompt
begin with exactly the tokens of the last turn's prompt and answer, so that the prefix cache works as on a
real engine.
"""

from __future__ import annotations

from collections.abc import Hashable
from random import Random

TOKEN_BYTES = 4

_WORDS = (
    "the and for you not are but was all any can had her him his how its may new now old one our out see "
    "two way who did get let man men put say she too use act add age ago aim air arm art ask bad bar bed "
    "big bit box boy buy car cat cut day dog dry eat end eye far few fit fly fun hit hot job key kid lab "
    "law lay leg lie lot low map mix net nor odd off oil own pay per ran red run sea set sit sky son sum "
    "sun tax tea ten tie top try war "
)

_RING_TOKENS = 1 << 16
_random = Random(20_231_115)
_starts = [_random.randrange(0, len(_WORDS), TOKEN_BYTES) for _ in range(_RING_TOKENS)]
_RING = "".join(_WORDS[start : start + TOKEN_BYTES] for start in _starts)


def numbers(text: str) -> list[int]:
    """The tokens of a text as numbers."""
    data = text.encode("utf-8", "surrogatepass")
    return [
        int.from_bytes(data[begin : begin + TOKEN_BYTES], "little")
        for begin in range(0, len(data), TOKEN_BYTES)
    ]


def count(text: str) -> int:
    """Tokens of a text."""
    return -(-(len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))) // TOKEN_BYTES)


def block_hashes(text: str, block_tokens: int, salt: Hashable = None) -> list[int]:
    """One hash for each full block of the text, each standing for everything up to its block's end."""
    data, size = text.encode("utf-8", "surrogatepass"), block_tokens * TOKEN_BYTES
    hashes, chain = [], hash(salt)
    for begin in range(0, len(data) - size + 1, size):
        chain = hash((chain, data[begin : begin + size]))
        hashes.append(chain)
    return hashes


def output(key: int, tokens: int) -> str:
    """`tokens` tokens of text, the same for the same key: four ASCII characters each, a word and a space."""
    begin = (key % _RING_TOKENS) * TOKEN_BYTES
    text = _RING[begin : begin + tokens * TOKEN_BYTES]
    while len(text) < tokens * TOKEN_BYTES:
        text += _RING[: tokens * TOKEN_BYTES - len(text)]
    return text
