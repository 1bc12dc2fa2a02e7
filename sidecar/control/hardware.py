"""What a backend runs on and what it serves, as far as the tables of facts know it."""

from __future__ import annotations

from dataclasses import dataclass

from sidecar.control.precision import variant
from sidecar.telemetry.readings import Record
from tokenweir import facts
from tokenweir.config.models import BackendConfig, ModelConfig


@dataclass(frozen=True, slots=True)
class Hardware:
    """Names as they were told; empty where nobody tells. `gpu` is the configured kind, else the
    exporter's."""

    gpu: str
    model: str
    precision: str
    gpus: int
    fp8: bool = False
    """Whether its GPU computes in fp8; False where the GPU is not known."""
    kv_capacity: int | None = None
    """KV tokens that fit beside the weights; None where GPU or model is not known, or it does not fit."""


def hardware(
    config: BackendConfig, record: Record, models: dict[str, ModelConfig], names: list[str]
) -> Hardware:
    """What is known of a backend. `models` are the configured models by name; `names` the public and engine
    names that it serves."""
    gpu = config.gpu or (record.card.name if record.card is not None else None) or ""
    configured = [models[name].facts or "" for name in names if name in models]
    model = next((name for name in configured if name), "")
    model = model or next((name for name in names if known_model(name)), "")
    precision = variant(config.precision)
    return Hardware(
        gpu, model, precision, config.gpus, _fp8(gpu), _kv_capacity(gpu, model, precision, config.gpus)
    )


def _fp8(gpu: str) -> bool:
    try:
        return facts.gpu(gpu).fp8
    except facts.UnknownFactError:
        return False


def _kv_capacity(gpu: str, model: str, precision: str, gpus: int) -> int | None:
    try:
        return facts.kv_capacity(gpu, model, precision or "fp16", gpus)
    except (facts.UnknownFactError, facts.DoesNotFitError):
        return None


def known_model(name: str) -> bool:
    """Whether the table of facts has a model."""
    try:
        facts.model(name)
    except facts.UnknownFactError:
        return False
    return True
