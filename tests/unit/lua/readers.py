"""Reads features of bodies as the gateway does, by name."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from model.core import Core

CORE = Core()


def read(body: dict[str, Any], kind: str = "chat", **writer: Any) -> dict[str, float]:
    """The features of a body by name, its words' indices under `words`, its system prompt's number under
    `system`, its estimated tokens under `tokens`."""
    found = CORE.read([kind], [json.dumps(body, **writer).encode()])
    features: dict[str, Any] = dict(zip(CORE.names, found.vectors[0].astype(float).tolist(), strict=True))
    features["words"] = set(found.words.index.tolist())
    features["system"] = float(found.system[0])
    features["tokens"] = float(found.tokens[0])
    return features


def user(text: Any) -> dict[str, Any]:
    """A chat of one message."""
    return {"model": "m", "messages": [{"role": "user", "content": text}]}


def of_text(text: str, **writer: Any) -> dict[str, float]:
    """The features of a chat of one message of the user."""
    return read(user(text), **writer)


def count(value: float) -> int:
    """What a logarithm of the vector counts."""
    return round(float(np.expm1(value)))
