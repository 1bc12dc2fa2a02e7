"""Streams of engines as tests make them, and what is counted in them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from tokenweir.luavm import new_runtime

FIGURES = (
    "events",
    "data_events",
    "first",
    "done",
    "error",
    "finish_reason",
    "prompt_tokens",
    "completion_tokens",
    "cached_tokens",
)


class Counter:
    """Feeds streams to one reused state and tells its figures."""

    def __init__(self) -> None:
        runtime = new_runtime()
        self._sse = runtime.eval(b'require("tokenweir.core.answer.sse")')
        self._sse = self._sse[0] if isinstance(self._sse, tuple) else self._sse
        self._state = self._sse.new()

    def count(self, chunks: Iterable[bytes]) -> dict[str, Any]:
        self._sse.reset(self._state)
        for chunk in chunks:
            self._sse.feed(self._state, chunk)
        self._sse.finish(self._state)
        told = {name: self._state[name.encode()] for name in FIGURES}
        return {k: v.decode() if isinstance(v, bytes) else v for k, v in told.items()}


def event(data: Any, end: str = "\n\n", name: str | None = None, **writer: Any) -> bytes:
    text = data if isinstance(data, str) else json.dumps(data, **writer)
    return ((f"event: {name}\n" if name else "") + f"data: {text}{end}").encode()


def chat(delta: dict[str, Any], finish: str | None = None, **more: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1700000000,
        "model": "m",
        "choices": [choice],
        **more,
    }


DONE = b"data: [DONE]\n\n"
USAGE = {
    "prompt_tokens": 12,
    "completion_tokens": 3,
    "total_tokens": 15,
    "prompt_tokens_details": {"cached_tokens": 8},
}


CHAT = (
    event(chat({"role": "assistant", "content": ""}))
    + event(chat({"content": "He"}))
    + event(chat({"content": 'l"lo\n'}))
    + event(chat({"content": ""}))
    + event(chat({"content": " 世界"}))
    + event(chat({}, finish="stop"))
    + event({**chat({}), "choices": [], "usage": USAGE})
    + DONE
)
