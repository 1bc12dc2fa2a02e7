"""Which completion records are believed. One bad record must neither stop the others nor bend the figures."""

from __future__ import annotations

import json
from collections.abc import Container
from typing import Any, Final

from pydantic import ValidationError

from tokenweir.contract import names
from tokenweir.contract.records import Completion

MOST_MS: Final = 7 * 24 * 3_600_000
FUTURE_MS: Final = 3_600_000
"""How far ahead a gateway's wall clock may be."""


class PoisonedError(ValueError):
    """A record, or a whole batch, that is not believed; the text is a short reason, fit for a metric's
    label."""


def batch(text: bytes | str) -> list[Any]:
    """The records of a batch, not yet believed. Raises PoisonedError."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise PoisonedError("batch_not_json") from None
    if not isinstance(value, list):
        raise PoisonedError("batch_no_list")
    return value


def believe(value: Any, backends: Container[str], now_ms: int) -> Completion:
    """The record, checked: shape, finite and possible numbers, a backend that is known. Raises
    PoisonedError."""
    try:
        record = Completion.model_validate(value)
    except ValidationError:
        raise PoisonedError("invalid") from None
    if record.backend not in backends:
        raise PoisonedError("unknown_backend")
    tokens = (
        record.output,
        record.prompt,
        record.cached,
        record.mean,
        record.median,
        record.q90,
        record.events,
    )
    if any(count is not None and count > names.MOST_TOKENS for count in tokens):
        raise PoisonedError("absurd_tokens")
    if record.cached is not None and record.prompt is not None and record.cached > record.prompt:
        raise PoisonedError("absurd_tokens")
    if record.total_ms > MOST_MS or record.wait_ms > MOST_MS or (record.ttft_ms or 0) > MOST_MS:
        raise PoisonedError("absurd_time")
    if record.time_ms > now_ms + FUTURE_MS:
        raise PoisonedError("absurd_time")
    return record
