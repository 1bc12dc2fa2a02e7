"""The inputs of the scan bench: request bodies, streams and answers as clients and engines write them."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from bench.overhead import bodies

KIB = 1024
EVENTS = 300


@dataclass(frozen=True)
class Input:
    """One case: what is done with what, and how many units (events, else 1) that is."""

    name: str
    operation: str
    kind: str
    pieces: list[bytes]
    units: int = 1

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(map(len, self.pieces))


def _tools(seed: int) -> bytes:
    source = random.Random(seed)
    names = [f"part_{source.randint(0, 999)}" for _ in range(6)]
    properties = {
        name: {"type": "string", "description": "The path, relative to the root. " * 3} for name in names
    }
    parameters = {"type": "object", "properties": properties, "required": names[:1]}
    tools = [
        {
            "type": "function",
            "function": {"name": f"tool_{k}", "description": "Reads a file. " * 30, "parameters": parameters},
        }
        for k in range(25)
    ]
    return json.dumps({**json.loads(bodies.chat(8 * KIB, "prose", seed)), "tools": tools}).encode()


def _ids(seed: int) -> bytes:
    source = random.Random(seed)
    return json.dumps({"model": "m", "prompt": [source.randint(0, 128_000) for _ in range(10_000)]}).encode()


def _event(data: dict[str, Any], name: str = "") -> bytes:
    return (name + "data: " + json.dumps(data, separators=(",", ":")) + "\n\n").encode()


def _chat_event(text: str, k: int, **more: Any) -> bytes:
    choice = {
        "index": 0,
        "delta": {"content": text},
        "logprobs": None,
        "finish_reason": None,
        **more.pop("choice", {}),
    }
    return _event(
        {
            "id": "chatcmpl-0123456789abcdef",
            "object": "chat.completion.chunk",
            "created": 1_700_000_000 + k // 50,
            "model": "llama-3-8b",
            "choices": [choice],
            **more,
        }
    )


def _with_usage(text: str, k: int) -> bytes:
    return _chat_event(text, k, usage={"prompt_tokens": 100, "completion_tokens": k, "total_tokens": 100 + k})


def _with_logprobs(text: str, k: int) -> bytes:
    top = [{"token": text, "logprob": -0.1 * k - j, "bytes": [97, 98]} for j in range(5)]
    content = [{"token": text, "logprob": -0.1 * k, "bytes": [97, 98], "top_logprobs": top}]
    return _chat_event(text, k, choice={"logprobs": {"content": content}})


def _responses_event(text: str, k: int) -> bytes:
    kind = "response.output_text.delta"
    data = {"type": kind, "sequence_number": k, "item_id": "msg_1", "output_index": 0, "content_index": 0}
    return _event({**data, "delta": text, "logprobs": []}, f"event: {kind}\n")


def _stream(event: Callable[[str, int], bytes], seed: int) -> list[bytes]:
    source = random.Random(seed)
    return [event(source.choice([" the", ",", ' "x"', "\n", " 世界", " token"]), k) for k in range(EVENTS)]


def _answer(size: int) -> list[bytes]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": "text " * (size // 5)},
        "finish_reason": "stop",
    }
    usage = {"prompt_tokens": 5, "completion_tokens": 7, "total_tokens": 12}
    text = json.dumps({"id": "x", "choices": [choice], "usage": usage}).encode()
    return [text[k : k + 8 * KIB] for k in range(0, len(text), 8 * KIB)]


def inputs(seed: int) -> list[Input]:
    """Return all cases; the texts depend on the seed."""
    made = []
    for size in (2, 20, 220):
        made.append(Input(f"chat {size} KB prose", "parse", "chat", [bodies.chat(size * KIB, "prose", seed)]))
        made.append(Input(f"chat {size} KB code", "parse", "chat", [bodies.chat(size * KIB, "code", seed)]))
    made.append(Input("chat with 25 tools", "parse", "chat", [_tools(seed)]))
    made.append(Input("completion of 10,000 token ids", "parse", "completions", [_ids(seed)]))
    for size in (2, 220):
        body = [bodies.chat(size * KIB, "prose", seed)]
        made.append(Input(f"digest of {size} KB", "digest", "chat", body))
        made.append(Input(f"opening digest of {size} KB", "opening_digest", "chat", body))
        made.append(Input(f"another model in {size} KB", "set_model", "chat", body))
    streams = {
        "chat events": _chat_event,
        "chat events with usage": _with_usage,
        "chat events with logprobs": _with_logprobs,
        "responses events": _responses_event,
    }
    for name, event in streams.items():
        made.append(Input(name, "stream", "chat", _stream(event, seed), EVENTS))
    halves = [half for whole in _stream(_chat_event, seed) for half in (whole[:150], whole[150:])]
    made.append(Input("chat events in two chunks", "stream", "chat", halves, EVENTS))
    made.append(Input("answer of 2 KB", "answer", "chat", _answer(2 * KIB)))
    made.append(Input("answer of 220 KB", "answer", "chat", _answer(220 * KIB)))
    return made
