"""Which reading counts as a backend's memory use.

vLLM and SGLang reserve about 90 % of the card at start, so the card says "full" for ever: where the engine
tells its KV use, that counts. The card counts for engines that grow, or where the operator says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sidecar.telemetry.readings import Record
from tokenweir.config.models import BackendConfig

BELIEVED_MS: Final = 10_000
"""An older reading is no longer told: the engine may hold anything by now."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory use, 0 to 1, how old it is, and in words where it is from."""

    use: float | None
    age_ms: float | None
    reason: str


def memory_use(config: BackendConfig, record: Record, now: float) -> Memory:
    """The use that counts under the backend's `memory` setting; None where it is not told."""
    engine, card = record.engine, record.card
    kv = engine.kv_use if engine is not None else None
    wanted = config.memory if config.memory != "auto" else ("kv" if kv is not None else "card")
    if wanted == "kv" and engine is not None and kv is not None:
        return _fresh(kv, now - engine.at, f"KV {kv:.0%} by {engine.source}")
    if wanted == "card" and card is not None and card.memory_use is not None:
        return _fresh(card.memory_use, now - card.at, f"card {card.memory_use:.0%} by {card.source}")
    if config.memory == "auto":
        cards = "nor of its GPU" if config.nvml or config.dcgm_url else "no DCGM exporter configured"
        return Memory(None, None, f"memory use: not told by the engine, {cards}")
    return Memory(None, None, f"memory use: `memory: {config.memory}` is wanted, and nobody tells it")


def _fresh(use: float, age_ms: float, text: str) -> Memory:
    if age_ms > BELIEVED_MS:
        return Memory(None, None, f"memory use: last told {age_ms / 1000:.0f} s ago, not believed any more")
    age_ms = max(age_ms, 0.0)  # it may have been read after the moment that is decided for
    return Memory(use, age_ms, f"memory use: {text}, {age_ms:.0f} ms ago")
