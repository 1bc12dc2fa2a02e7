"""How much fits on a backend: KV tokens, the longest context, requests at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from sidecar.control.hardware import Hardware
from sidecar.telemetry.readings import Record
from tokenweir.config.models import BackendConfig

RESERVING: Final = frozenset({"vllm", "sglang", "trtllm", "tgi"})
"""Engines that take their KV memory at start, in about the share that the facts reckon with."""


@dataclass(frozen=True, slots=True)
class Capacity:
    """Limits of a backend; None where neither the configuration nor the engine tells."""

    tokens: int | None
    context: int | None
    concurrency: int | None
    reason: str


class CapacityEstimate:
    """Limits by the configuration, else by the engine, else, of an engine that reserves its memory at start,
    by what fits beside the weights. One of which not even that is known is bounded by the batch at which it
    was seen to let others wait."""

    def __init__(self) -> None:
        self._learned: int | None = None

    def observe(self, record: Record) -> None:
        """Take a reading: requests wait beside a batch, so that batch is what the engine takes at once."""
        engine = record.engine
        if engine is not None and engine.waiting and engine.running:
            self._learned = max(self._learned or 1, int(engine.running))

    def of(self, config: BackendConfig, record: Record, known: Hardware | None = None) -> Capacity:
        """The limits now; `known` is what the backend runs on."""
        engine, models = record.engine, record.models
        tokens, source = config.kv_capacity, "configured"
        if tokens is None and engine is not None and engine.capacity:
            tokens, source = engine.capacity, f"by {engine.source}"
        if tokens is None and models is not None and models.capacity:
            tokens, source = models.capacity, f"by {models.source}"
        if tokens is None and known is not None and record.engine_kind in RESERVING:
            tokens, source = known.kv_capacity, f"by the facts of {known.gpus} x {known.gpu}, {known.model}"
        context = config.context or (models.context if models is not None else None)
        concurrency = config.concurrency or (models.slots if models is not None else None)
        if tokens is not None:
            reason = f"capacity: {tokens} KV tokens, {source}"
        else:
            concurrency = concurrency or self._learned
            bound = "nothing bounds it" if concurrency is None else f"{concurrency} requests at once"
            reason = f"capacity: the engine tells none; {bound}"
        return Capacity(tokens, context, concurrency, reason)
