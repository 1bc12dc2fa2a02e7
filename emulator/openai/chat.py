"""`POST /v1/chat/completions`."""

from __future__ import annotations

import json
from typing import Any

from emulator.openai.answer import Answer, Choice
from emulator.openai.shape import event, last_events

PATH = "/v1/chat/completions"
LIMITS = ("max_completion_tokens", "max_tokens")


class ChatShape:
    """A chat completion."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._head: dict[str, Any] = {
            "id": answer.id,
            "object": "chat.completion.chunk",
            "created": answer.created,
            "model": answer.model,
        }
        # The only part that changes from token to token is the text, which needs no escapes.
        chunk = json.dumps({**self._head, "choices": ["|"]}, separators=(",", ":")).split('"|"')
        self._before, self._after = f"data: {chunk[0]}".encode(), chunk[1].encode() + b"\n\n"

    def _logprobs(self, text: str) -> dict[str, Any] | None:
        if not self.answer.sampling.logprobs:
            return None
        pieces = [text[i : i + 4] for i in range(0, len(text), 4)]
        content = [
            {"token": piece, "logprob": -0.25, "bytes": list(piece.encode()), "top_logprobs": []}
            for piece in pieces
        ]
        return {"content": content, "refusal": None}

    def whole(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request that does not stream."""
        choices: list[dict[str, Any]] = [
            {
                "index": choice.index,
                "message": {"role": "assistant", "content": choice.text, "refusal": None, "tool_calls": []},
                "logprobs": self._logprobs(choice.text),
                "finish_reason": choice.finish_reason,
            }
            for choice in self.answer.choices
        ]
        return {**self._head, "object": "chat.completion", "choices": choices, "usage": usage}

    def _chunk(self, choice: Choice, delta: dict[str, Any], finish_reason: str | None) -> bytes:
        body = {"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        return event({**self._head, "choices": [body]})

    def opening(self) -> bytes:
        """The role of each choice."""
        role = {"role": "assistant", "content": ""}
        return b"".join(self._chunk(choice, role, None) for choice in self.answer.choices)

    def piece(self, choice: Choice, text: str) -> bytes:
        """The event of one token."""
        logprobs = json.dumps(self._logprobs(text)) if self.answer.sampling.logprobs else "null"
        body = (
            f'{{"index":{choice.index},"delta":{{"content":"{text}"}},'
            f'"logprobs":{logprobs},"finish_reason":null}}'
        )
        return self._before + body.encode() + self._after

    def closing(self, choice: Choice) -> bytes:
        """The finish reason."""
        return self._chunk(choice, {}, choice.finish_reason)

    def ending(self, usage: dict[str, Any]) -> bytes:
        """Usage, where it was asked for, and the end."""
        return last_events(self.answer, self._head, usage)
