"""`POST /v1/completions`."""

from __future__ import annotations

from typing import Any

from emulator.openai.answer import Answer, Choice
from emulator.openai.shape import event, last_events

PATH = "/v1/completions"
LIMITS = ("max_tokens",)
DEFAULT_MAX_TOKENS = 16


class CompletionShape:
    """A text completion."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._head = {
            "id": answer.id,
            "object": "text_completion",
            "created": answer.created,
            "model": answer.model,
        }

    def _choice(self, choice: Choice, text: str, finish_reason: str | None) -> dict[str, Any]:
        logprobs = None
        if self.answer.sampling.logprobs:
            pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
            logprobs = {
                "tokens": pieces,
                "token_logprobs": [-0.25] * len(pieces),
                "top_logprobs": [{}] * len(pieces),
                "text_offset": [4 * i for i in range(len(pieces))],
            }
        return {"index": choice.index, "text": text, "logprobs": logprobs, "finish_reason": finish_reason}

    def whole(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        choices = [self._choice(choice, choice.text, choice.finish_reason) for choice in self.answer.choices]
        return {**self._head, "choices": choices, "usage": usage}

    def opening(self) -> bytes:
        """Nothing comes before the first token."""
        return b""

    def piece(self, choice: Choice, text: str) -> bytes:
        """The event of one token."""
        return event({**self._head, "choices": [self._choice(choice, text, None)]})

    def closing(self, choice: Choice) -> bytes:
        """The finish reason."""
        return event({**self._head, "choices": [self._choice(choice, "", choice.finish_reason)]})

    def ending(self, usage: dict[str, Any]) -> bytes:
        """Usage, where it was asked for, and the end."""
        return last_events(self.answer, self._head, usage)
