"""Ollama's list of models in memory (`/api/ps`). It tells neither running nor waiting requests: load is what
the gateways have there.
https://github.com/ollama/ollama/blob/main/docs/api.md#list-running-models
"""

from __future__ import annotations

import json

from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import EngineReading

NAME = "ollama"
PATH = "/api/ps"
MOST_LOADED = 64


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is not Ollama's."""
    try:
        document = json.loads(page.body)
    except (ValueError, RecursionError):
        return None
    entries = document.get("models") if isinstance(document, dict) else None
    if not isinstance(entries, list):
        return None
    names = [entry.get("name") for entry in entries[:MOST_LOADED] if isinstance(entry, dict)]
    return EngineReading(
        at=at, source=NAME, loaded=tuple(name for name in names if isinstance(name, str) and name)
    )
