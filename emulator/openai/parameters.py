"""The parameters of a request, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from emulator.openai.errors import ApiError, invalid

MOST_CHOICES = 128


@dataclass(frozen=True)
class Sampling:
    """What decides how much is produced, and how it is sent."""

    stream: bool
    include_usage: bool
    n: int
    max_tokens: int | None
    min_tokens: int
    ignore_eos: bool
    stop: tuple[str, ...]
    seed: int | None
    logprobs: bool


def document(body: bytes) -> dict[str, Any]:
    """The body as a JSON object. Raises ApiError."""
    try:
        found = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ApiError(
            400, f"could not parse the JSON body of your request: {error}", code="invalid_json"
        ) from None
    if not isinstance(found, dict):
        raise ApiError(400, "the body of your request must be a JSON object", code="invalid_type")
    return found


def _integer(body: Mapping[str, Any], name: str, low: int, high: int = 1 << 31) -> int | None:
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise invalid(f"{name} must be an integer, got {value!r}", name, "invalid_type")
    if not low <= value <= high:
        raise invalid(f"{name} must be from {low} to {high}, got {value}", name)
    return value


def _number(body: Mapping[str, Any], name: str, low: float, high: float) -> None:
    value = body.get(name)
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise invalid(f"{name} must be a number, got {value!r}", name, "invalid_type")
    if not low <= value <= high:
        raise invalid(f"{name} must be from {low:g} to {high:g}, got {value}", name)


def _flag(body: Mapping[str, Any], name: str) -> bool:
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise invalid(f"{name} must be true or false, got {value!r}", name, "invalid_type")
    return bool(value)


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    value = body.get("stop")
    found = [value] if isinstance(value, str) else value or []
    if not isinstance(found, list) or not all(isinstance(item, str) for item in found):
        raise invalid("stop must be a string or a list of strings", "stop", "invalid_type")
    return tuple(item for item in found if item)


def sampling(body: Mapping[str, Any], max_tokens_names: tuple[str, ...], default_max: int | None) -> Sampling:
    """Check and read the parameters. `max_tokens_names`: where the limit is looked for, first found wins.
    Raises ApiError."""
    _number(body, "temperature", 0, 2)
    _number(body, "top_p", 0, 1)
    limits = [value for name in max_tokens_names if (value := _integer(body, name, 1)) is not None]
    options = body.get("stream_options")
    if options is not None and not isinstance(options, dict):
        raise invalid("stream_options must be an object", "stream_options", "invalid_type")
    if options and not body.get("stream"):
        raise invalid("stream_options is only for stream=true", "stream_options")
    logprobs = body.get("logprobs")
    return Sampling(
        stream=_flag(body, "stream"),
        include_usage=_flag(options or {}, "include_usage"),
        n=_integer(body, "n", 1, MOST_CHOICES) or 1,
        max_tokens=limits[0] if limits else default_max,
        min_tokens=_integer(body, "min_tokens", 0) or 0,
        ignore_eos=_flag(body, "ignore_eos"),
        stop=_stop(body),
        seed=_integer(body, "seed", -(1 << 63), 1 << 63),
        logprobs=logprobs is not None and logprobs is not False,
    )
