"""What an endpoint's answers look like; `emulator.delivery` decides when each part is sent."""

from __future__ import annotations

import json
from typing import Any, Protocol

from emulator.openai.answer import Answer, Choice

DONE = b"data: [DONE]\n\n"


def event(document: dict[str, Any], name: str = "") -> bytes:
    """One server-sent event."""
    head = f"event: {name}\ndata: " if name else "data: "
    return head.encode() + json.dumps(document, separators=(",", ":")).encode() + b"\n\n"


def last_events(answer: Answer, head: dict[str, Any], usage: dict[str, Any]) -> bytes:
    """The end of a stream of chunks with this `head`: usage, where it was asked for, and the end's mark."""
    last = event({**head, "choices": [], "usage": usage}) if answer.sampling.include_usage else b""
    return last + DONE


class Shape(Protocol):
    """Renders one answer, whole or as a stream of events."""

    answer: Answer

    def whole(self, usage: dict[str, Any]) -> dict[str, Any]:
        """The answer to a request that does not stream."""

    def opening(self) -> bytes:
        """Events before the first token."""

    def piece(self, choice: Choice, text: str) -> bytes:
        """The event of one token."""

    def closing(self, choice: Choice) -> bytes:
        """The events at the end of a choice."""

    def ending(self, usage: dict[str, Any]) -> bytes:
        """The events at the end of the stream."""
