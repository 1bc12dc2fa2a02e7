"""What the model will say: text, length and reason for its end are known when the request comes in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from emulator import lengths, tokens
from emulator.engine import Request
from emulator.openai.errors import invalid
from emulator.openai.parameters import Sampling
from emulator.openai.prompt import Prompt
from emulator.settings import Settings


@dataclass(frozen=True)
class Choice:
    """One sequence of an answer."""

    index: int
    text: str
    finish_reason: str
    request: Request

    def piece(self, token: int) -> str:
        """The text of one token; empty for the tokens of a stop sequence, which is not shown."""
        return self.text[token * tokens.TOKEN_BYTES : (token + 1) * tokens.TOKEN_BYTES]


def _room(settings: Settings, prompt: Prompt, limit: int | None, limit_name: str) -> int:
    """Most tokens that the answer may have. Raises ApiError."""
    context = settings.context
    wanted = 1 if limit is None else limit
    if prompt.tokens + wanted > context:
        param = "messages" if prompt.tokens >= context else limit_name
        raise invalid(
            f"This model's maximum context length is {context} tokens. However, you requested "
            f"{prompt.tokens + wanted} tokens ({prompt.tokens} in the prompt, {wanted} in the completion).",
            param,
            "context_length_exceeded",
        )
    return context - prompt.tokens if limit is None else limit


def _length(sampling: Sampling, key: int, exact: int | None, room: int) -> tuple[int, str]:
    """Tokens of an answer and why it ends there."""
    if exact is None and sampling.ignore_eos:
        return room, "length"
    natural = exact if exact is not None else max(lengths.drawn(key), sampling.min_tokens)
    return (room, "length") if natural > room else (natural, "stop")


def choices(
    settings: Settings, prompt: Prompt, sampling: Sampling, exact: int | None, limit_name: str
) -> list[Choice]:
    """The `n` choices of a prompt, from index `first` on, with their requests to the engine. Raises
    ApiError."""
    room = _room(settings, prompt, sampling.max_tokens, limit_name)
    block = settings.limits.hash_tokens
    found = []
    for i in range(sampling.n):
        key = lengths.key(prompt.text, sampling.seed, i, settings.seed)
        count, reason = _length(sampling, key, exact, room)
        text = tokens.output(key, count)
        cuts = [(at, at + len(stop)) for stop in sampling.stop if (at := text.find(stop)) >= 0]
        if cuts:
            begin, end = min(cuts)
            count, reason = -(-end // tokens.TOKEN_BYTES), "stop"
            text = text[:begin]
        hashes = tokens.block_hashes(prompt.text + text, block)
        found.append(Choice(i, text, reason, Request(prompt.tokens, count, hashes)))
    return found


@dataclass(frozen=True)
class Answer:
    """One answer in the making: `sampling.n` choices for each prompt."""

    id: str
    model: str
    created: int
    sampling: Sampling
    prompt_tokens: int
    choices: list[Choice]

    def usage(self, generated: int) -> dict[str, Any]:
        """OpenAI's `usage`: every prompt once, and the tokens that were produced."""
        cached = sum(max(0, choice.request.cached) for choice in self.choices[:: self.sampling.n])
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": generated,
            "total_tokens": self.prompt_tokens + generated,
            "prompt_tokens_details": {"cached_tokens": cached},
        }
