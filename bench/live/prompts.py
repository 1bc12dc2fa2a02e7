"""Prompts whose answers have a wanted length, though nothing in a request tells it.

Load generators order lengths (`max_tokens`, `ignore_eos`), and a router that reads that knows what no client
of a chat tells. The emulated model draws the length of an answer by a hash of the prompt, so a prompt is
looked for that it answers at about the length of the trace."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from bench.policy.traces import Asked
from emulator import lengths, tokens
from emulator.openai import prompt

CLOSE: Final = 0.01
"""A length that is off by no more than this is as wanted."""
TRIES: Final = 4000


def chats(asked: Sequence[Asked], seed: int) -> list[list[dict[str, Any]]]:
    """The messages of each request, all of them different from their first words on."""
    rng = random.Random(f"prompts/{seed}")
    return [_chat(request, rng) for request in asked]


def answer_tokens(messages: list[dict[str, Any]]) -> int:
    """How long the emulated model's answer to a chat is, where nothing orders a length."""
    return lengths.drawn(lengths.key(prompt.chat(messages, None).text, None, 0, 0))


def _chat(request: Asked, rng: random.Random) -> list[dict[str, Any]]:
    frame = len(prompt.chat([{"role": "user", "content": ""}], None).text)
    size = max(1, request.prompt * tokens.TOKEN_BYTES - frame)
    body = tokens.output(rng.getrandbits(64), -(-size // tokens.TOKEN_BYTES))[:size]
    best: list[dict[str, Any]] = []
    least = float("inf")
    for number in range(TRIES):
        mark = f" {number}"
        messages = [{"role": "user", "content": body[: max(0, size - len(mark))] + mark}]
        off = abs(answer_tokens(messages) / request.output - 1)
        if off < least:
            best, least = messages, off
        if off <= CLOSE:
            break
    return best
