"""`POST /v1/responses`, and the responses that the server remembers for `previous_response_id`."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator import tokens
from emulator.openai.answer import Answer, Choice
from emulator.openai.errors import ApiError, invalid
from emulator.openai.prompt import Prompt, turns
from emulator.openai.shape import event

PATH = "/v1/responses"
LIMITS = ("max_output_tokens",)
MOST_REMEMBERED = 10_000


@dataclass(frozen=True)
class Remembered:
    """A finished response and the conversation up to its end."""

    document: dict[str, Any]
    conversation: str


class ResponseStore:
    """The last responses, by id."""

    def __init__(self) -> None:
        self._responses: OrderedDict[str, Remembered] = OrderedDict()

    def __len__(self) -> int:
        return len(self._responses)

    def keep(self, response_id: str, document: dict[str, Any], conversation: str) -> None:
        """Remember a response; the oldest is forgotten beyond 10,000."""
        self._responses[response_id] = Remembered(document, conversation)
        if len(self._responses) > MOST_REMEMBERED:
            self._responses.popitem(last=False)

    def find(self, response_id: str) -> Remembered:
        """A remembered response. Raises ApiError (404)."""
        if found := self._responses.get(response_id):
            return found
        raise ApiError(
            404, f"Response with id '{response_id}' not found.", param="response_id", code="not_found"
        )

    def delete(self, response_id: str) -> None:
        """Forget a response. Raises ApiError (404)."""
        self.find(response_id)
        del self._responses[response_id]


def prompt(body: Mapping[str, Any], store: ResponseStore) -> Prompt:
    """The conversation that `input`, `instructions` and `previous_response_id` make. Raises ApiError."""
    value, previous = body.get("input"), body.get("previous_response_id")
    if isinstance(value, str):
        value = [{"role": "user", "content": value}]
    if not isinstance(value, list):
        raise invalid("input must be a text or a list of items", "input", "invalid_type")
    messages = [item for item in value if not isinstance(item, dict) or item.get("role")]
    instructions = body.get("instructions")
    head = f"<|system|>{instructions}\n" if isinstance(instructions, str) else ""
    if previous is not None:
        if not isinstance(previous, str):
            raise invalid("previous_response_id must be a text", "previous_response_id", "invalid_type")
        head = store.find(previous).conversation + head
    text = f"{head}{turns(messages, 'input')}<|assistant|>"
    return Prompt(text, tokens.count(text))


class ResponseShape:
    """A response of one output message."""

    def __init__(self, answer: Answer, body: Mapping[str, Any]) -> None:
        self.answer = answer
        self._message_id = "msg_" + answer.id.removeprefix("resp_")
        self._sequence = 0
        self._head = {
            "id": answer.id,
            "object": "response",
            "created_at": answer.created,
            "model": answer.model,
            "instructions": body.get("instructions"),
            "previous_response_id": body.get("previous_response_id"),
            "max_output_tokens": answer.sampling.max_tokens,
            "parallel_tool_calls": True,
            "tool_choice": body.get("tool_choice", "auto"),
            "tools": body.get("tools") or [],
            "temperature": body.get("temperature"),
            "top_p": body.get("top_p"),
            "metadata": body.get("metadata") or {},
            "error": None,
            "incomplete_details": None,
        }

    def _message(self, text: str, status: str) -> dict[str, Any]:
        content = [self._part(text)] if text else []
        return {
            "id": self._message_id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": content,
        }

    @staticmethod
    def _part(text: str) -> dict[str, Any]:
        return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}

    def _event(self, name: str, **fields: Any) -> bytes:
        found = event({"type": name, "sequence_number": self._sequence, **fields}, name)
        self._sequence += 1
        return found

    def whole(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The finished response."""
        choice = self.answer.choices[0]
        cut = choice.finish_reason == "length"
        return {
            **self._head,
            "status": "incomplete" if cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
            "output": [self._message(choice.text, "incomplete" if cut else "completed")],
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }

    def opening(self) -> bytes:
        """The response, its message and the message's text begin."""
        message = self._message("", "in_progress")
        begun = {**self._head, "status": "in_progress", "output": [], "usage": None}
        return b"".join(
            (
                self._event("response.created", response=begun),
                self._event("response.in_progress", response=begun),
                self._event("response.output_item.added", output_index=0, item=message),
                self._event("response.content_part.added", **self._place, part=self._part("")),
            )
        )

    @property
    def _place(self) -> dict[str, Any]:
        return {"item_id": self._message_id, "output_index": 0, "content_index": 0}

    def piece(self, choice: Choice, text: str) -> bytes:
        """The event of one token."""
        return self._event("response.output_text.delta", **self._place, delta=text, logprobs=[])

    def closing(self, choice: Choice) -> bytes:
        """The text and its message end."""
        status = "incomplete" if choice.finish_reason == "length" else "completed"
        message = self._message(choice.text, status)
        return b"".join(
            (
                self._event("response.output_text.done", **self._place, text=choice.text, logprobs=[]),
                self._event("response.content_part.done", **self._place, part=self._part(choice.text)),
                self._event("response.output_item.done", output_index=0, item=message),
            )
        )

    def ending(self, usage: dict[str, Any]) -> bytes:
        """The response ends."""
        whole = self.whole(usage)
        return self._event(f"response.{whole['status']}", response=whole)
