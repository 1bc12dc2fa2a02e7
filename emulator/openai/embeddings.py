"""`POST /v1/embeddings`."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Mapping
from random import Random
from typing import Any

from emulator import lengths, tokens
from emulator.engine import Request
from emulator.openai.errors import invalid
from emulator.openai.prompt import Prompt
from emulator.settings import Settings

PATH = "/v1/embeddings"
DIMENSIONS = 256
MOST_DIMENSIONS = 8192


def requests(settings: Settings, prompts: list[Prompt]) -> list[Request]:
    """One request to the engine for each text. Raises ApiError for a text longer than the context."""
    for prompt in prompts:
        if prompt.tokens > settings.context:
            raise invalid(
                f"This model's maximum context length is {settings.context} tokens. However, you requested "
                f"{prompt.tokens} tokens in the input.",
                "input",
                "context_length_exceeded",
            )
    block = settings.limits.hash_tokens
    return [
        Request(prompt.tokens, 0, tokens.block_hashes(prompt.text, block, "embedding")) for prompt in prompts
    ]


def dimensions(body: Mapping[str, Any]) -> int:
    """Length of the vectors. Raises ApiError."""
    value = body.get("dimensions")
    if value is None:
        return DIMENSIONS
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_DIMENSIONS:
        raise invalid(
            f"dimensions must be an integer from 1 to {MOST_DIMENSIONS}, got {value!r}", "dimensions"
        )
    return value


def encoding(body: Mapping[str, Any]) -> str:
    """`float` or `base64`. Raises ApiError."""
    value = body.get("encoding_format") or "float"
    if value not in ("float", "base64"):
        raise invalid(f"encoding_format must be float or base64, got {value!r}", "encoding_format")
    return str(value)


def vector(prompt: Prompt, size: int, seed: int) -> list[float]:
    """A vector of length 1, the same for the same text."""
    random = Random(lengths.key(prompt.text, None, 0, seed))
    values = [random.gauss(0, 1) for _ in range(size)]
    norm = math.sqrt(sum(value * value for value in values))
    return [value / norm for value in values]


def document(model: str, prompts: list[Prompt], size: int, form: str, seed: int) -> dict[str, Any]:
    """The answer."""
    data = []
    for i, prompt in enumerate(prompts):
        values: Any = vector(prompt, size, seed)
        if form == "base64":
            values = base64.b64encode(struct.pack(f"<{size}f", *values)).decode()
        data.append({"object": "embedding", "index": i, "embedding": values})
    total = sum(prompt.tokens for prompt in prompts)
    return {
        "object": "list",
        "data": data,
        "model": model,
        "usage": {"prompt_tokens": total, "total_tokens": total},
    }
