"""What an engine serves: the answer of `/v1/models`, and the extra page on which some tell their limits."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sidecar.telemetry.plausible import MOST_CAPACITY, MOST_REQUESTS
from sidecar.telemetry.readings import ModelsReading

PATH: Final = "/v1/models"
INFORMATION: Final[Mapping[str, str]] = {
    "llamacpp": "/props",
    "sglang": "/get_server_info",
    "tgi": "/info",
    "ollama": "/api/ps",
}
"""Engine -> page that tells slots, context or capacity."""

MOST_MODELS, LONGEST_NAME = 256, 256


def read(body: bytes, at: float) -> ModelsReading:
    """A reading of the OpenAI list. Raises ValueError, which says what is wrong with the answer.

    Names that cannot stand in a header or a log line are left out. Where several models are listed, the
    smallest context counts: a request is routed before its model's own limit is looked up."""
    entries = _object(body).get("data")
    if not isinstance(entries, list):
        raise ValueError("the answer of /v1/models has no list `data`")
    names: list[str] = []
    contexts: list[int] = []
    capacities: list[int] = []
    owner = None
    for entry in entries[:MOST_MODELS]:
        if not isinstance(entry, dict):
            continue
        name = entry.get("id")
        if not isinstance(name, str) or not _printable(name):
            continue
        names.append(name)
        if isinstance(entry.get("owned_by"), str) and owner is None:
            owner = entry["owned_by"]
        meta = entry.get("meta")
        size = _positive(meta.get("n_ctx")) if isinstance(meta, dict) else None
        if size:
            capacities.append(size)
        context = _positive(entry.get("max_model_len")) or size
        if context:
            contexts.append(context)
    return ModelsReading(
        at=at,
        source=PATH,
        names=tuple(dict.fromkeys(names)),
        context=min(contexts, default=None),
        capacity=min(capacities, default=None),
        owner=owner,
    )


def with_information(reading: ModelsReading, kind: str, body: bytes) -> ModelsReading:
    """The reading, completed from the engine's own information page. Raises ValueError on a strange one."""
    page = _object(body)
    context, capacity, slots, names = reading.context, reading.capacity, reading.slots, reading.names
    if kind == "llamacpp":
        slots = _positive(page.get("total_slots"), MOST_REQUESTS) or slots
        settings = page.get("default_generation_settings")
        size = _positive(settings.get("n_ctx")) if isinstance(settings, dict) else None
        # `n_ctx` is what one slot has. With --kv-unified all slots share one memory of that size, which no
        # page tells.
        context = context or size
        capacity = min(context * (slots or 1), MOST_CAPACITY) if context else None
    elif kind == "sglang":
        capacity = _positive(page.get("max_total_num_tokens")) or capacity
        context = _positive(page.get("context_length")) or context
        slots = _positive(page.get("max_running_requests"), MOST_REQUESTS) or slots
    elif kind == "tgi":
        capacity = _positive(page.get("max_batch_total_tokens")) or capacity
        context = _positive(page.get("max_total_tokens")) or context
        name = page.get("model_id")
        if not names and isinstance(name, str) and _printable(name):
            names = (name,)
    elif kind == "ollama":
        loaded = page.get("models")
        sizes = [
            _positive(entry.get("context_length"))
            for entry in (loaded if isinstance(loaded, list) else [])
            if isinstance(entry, dict)
        ]
        context = min((size for size in sizes if size), default=context)
    return ModelsReading(
        at=reading.at,
        source=f"{reading.source} and {INFORMATION[kind]}",
        names=names,
        context=context,
        capacity=capacity,
        slots=slots,
        owner=reading.owner,
    )


def _object(body: bytes) -> dict[str, Any]:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the answer is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("the answer is not a JSON object")
    return value


def _positive(value: Any, most: int = 10**9) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= most else None


def _printable(name: str) -> bool:
    return 0 < len(name) <= LONGEST_NAME and name.isprintable()
