"""Request bodies of a given size: prose, and source code with its many quotes and line ends."""

from __future__ import annotations

import json
import random
from typing import Any, Literal

from bench.overhead.upstream import MODEL

Text = Literal["prose", "code"]

_VOCABULARY = """
the of and to in is that for it as was with be by on not he this are or his from at which but have
an had they you were their one all we can her has there been if more when will would who so no
model request server memory token answer question latency measure because through between together
important different example
"""
_WORDS = _VOCABULARY.split()


def _prose(source: random.Random) -> str:
    sentences = []
    for _ in range(source.randint(3, 7)):
        words = source.choices(_WORDS, k=source.randint(6, 18))
        sentences.append(" ".join(words).capitalize() + ".")
    return " ".join(sentences) + "\n\n"


def _code(source: random.Random) -> str:
    one, two, three = source.choices(_WORDS, k=3)
    number = source.randint(0, 999)
    return (
        f'    if {one}_{number} == "{two}":\n'
        f'\t\tlog.info("{three} \\"%s\\" took %d ms\\n", {{"{one}": "{two}", "n": {number}}})\n'
        f"    # {two}'s C:\\\\{one}\\\\{three}\n"
    )


def chat(size: int, text: Text, seed: int) -> bytes:
    """Return a chat completion body of exactly `size` bytes: a system message, then turns."""
    source = random.Random(seed)
    piece = _prose if text == "prose" else _code
    messages: list[dict[str, str]] = [{"role": "system", "content": "You are a helpful assistant."}]
    body: dict[str, Any] = {
        "model": MODEL,
        "messages": messages,
        "temperature": 0.7,
        "max_tokens": 256,
        "stream": False,
    }
    turn = max(1000, size // 10)
    while (left := size - len(json.dumps(body)) - 64) > 0:
        content = ""
        while len(json.dumps(content)) < min(turn, left):
            content += piece(source)
        role = "user" if len(messages) % 2 else "assistant"
        messages.append({"role": role, "content": content})
    messages[-1]["role"] = "user"
    while (over := len(json.dumps(body)) - size) > 0:
        messages[-1]["content"] = messages[-1]["content"][: -max(1, over // 2)]
    messages[-1]["content"] += "." * -over
    encoded = json.dumps(body).encode()
    assert len(encoded) == size
    return encoded


def stream() -> bytes:
    """Return a small body that asks for a stream."""
    messages = [{"role": "user", "content": "Count to fifty."}]
    body = {"model": MODEL, "messages": messages, "stream": True, "max_tokens": 64}
    return json.dumps(body).encode()
