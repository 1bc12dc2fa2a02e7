"""What the model reads: the request's text as one string."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from emulator import tokens
from emulator.openai.errors import invalid

IMAGE_TOKENS = 576
"""Tokens of an image: 24 x 24 patches, as in LLaVA 1.5."""


@dataclass(frozen=True)
class Prompt:
    """A prompt: its text and its length."""

    text: str
    tokens: int


def _content(content: Any, param: str) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise invalid(f"{param} must be a string or a list of parts", param, "invalid_type")
    parts = []
    for part in content:
        if not isinstance(part, dict):
            raise invalid(f"every part of {param} must be an object", param, "invalid_type")
        text = part.get("text")
        parts.append(text if isinstance(text, str) else "#" * (IMAGE_TOKENS * tokens.TOKEN_BYTES))
    return "".join(parts)


def turns(messages: Any, param: str) -> str:
    """Messages in the chat template, each `<|role|>content` and a line end. Raises ApiError."""
    if not isinstance(messages, list) or not messages:
        raise invalid(f"{param} must be a list of at least one message", param, "invalid_type")
    lines = []
    for i, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise invalid(f"{param}[{i}] must be an object with a role", f"{param}[{i}]", "invalid_type")
        calls = json.dumps(message["tool_calls"]) if message.get("tool_calls") else ""
        lines.append(
            f"<|{message['role']}|>{_content(message.get('content'), f'{param}[{i}].content')}{calls}\n"
        )
    return "".join(lines)


def chat(messages: Any, tools: Any, param: str = "messages") -> Prompt:
    """A chat's prompt; tools are read by the model, though it never calls one. Raises ApiError."""
    head = f"<|tools|>{json.dumps(tools)}\n" if tools else ""
    text = f"{head}{turns(messages, param)}<|assistant|>"
    return Prompt(text, tokens.count(text))


def plain(value: Any, param: str) -> list[Prompt]:
    """Prompts of a completion or an embedding: a text, a list of texts, a list of token numbers, or a list of
    such lists. Raises ApiError."""
    if isinstance(value, str) or (isinstance(value, list) and value and isinstance(value[0], int)):
        value = [value]
    if not isinstance(value, list) or not value:
        raise invalid(f"{param} must be a text, a list of texts, or a list of tokens", param, "invalid_type")
    prompts = []
    for item in value:
        if isinstance(item, str):
            prompts.append(Prompt(item, max(1, tokens.count(item))))
        elif isinstance(item, list) and item and all(isinstance(token, int) for token in item):
            text = "".join(f"{token & 0xFFFF:04x}" for token in item)
            prompts.append(Prompt(text, len(item)))
        else:
            raise invalid(
                f"{param} must be a text, a list of texts, or a list of tokens", param, "invalid_type"
            )
    return prompts
