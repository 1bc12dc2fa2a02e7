"""What work costs on a backend: start coefficients from the table of GPU and model facts.

`CostEstimate` is where a fit from the engine's own counters continues: it keeps per backend what the table
said, and `of` is asked anew every tick.
"""

from __future__ import annotations

from typing import Final

from sidecar.telemetry.readings import Record
from tokenweir import facts
from tokenweir.config.models import BackendConfig, ModelConfig
from tokenweir.contract.records import Cost

DEFAULT_GPU: Final = "A100-80G"
DEFAULT_MODEL: Final = "llama-3-8b"
"""Assumed of what nobody tells. All unknown backends cost the same, so they are treated alike."""


class CostEstimate:
    """The cost coefficients of one backend."""

    def __init__(self) -> None:
        self._basis: tuple[object, ...] | None = None
        self._cost: Cost | None = None
        self._reason = ""

    def of(
        self, config: BackendConfig, record: Record, models: dict[str, ModelConfig], names: list[str]
    ) -> tuple[Cost, str]:
        """Coefficients and their reason. `models` are the configured models by name; `names` the public and
        engine names that the backend serves."""
        gpu = config.gpu or (record.card.name if record.card is not None else None) or ""
        configured = [models[name].facts or "" for name in names if name in models]
        basis = (gpu, names, configured, config.precision, config.gpus)
        if self._cost is None or basis != self._basis:
            self._basis = basis
            model = next((name for name in configured if name), "")
            model = model or next((name for name in names if _known_model(name)), "")
            self._cost, self._reason = start_cost(gpu, model, config.precision, config.gpus)
        return self._cost, self._reason


def start_cost(gpu: str, model: str, precision: str, gpus: int) -> tuple[Cost, str]:
    """Coefficients of a kind of GPU and a model, by the table; what is unknown is taken to be the default,
    and the reason says so."""
    assumed: list[str] = []
    try:
        gpu = facts.gpu(gpu).name
    except facts.UnknownFactError:
        assumed.append(
            f"GPU {gpu!r} unknown, taken as {DEFAULT_GPU}" if gpu else f"GPU not told: {DEFAULT_GPU}"
        )
        gpu = DEFAULT_GPU
    try:
        model = facts.model(model).name
    except facts.UnknownFactError:
        assumed.append(
            f"model {model!r} unknown, taken as {DEFAULT_MODEL}"
            if model
            else f"model not known: {DEFAULT_MODEL}"
        )
        model = DEFAULT_MODEL
    try:
        kind = facts.precision(precision) if precision else "fp16"
    except facts.UnknownFactError:
        assumed.append(f"precision {precision!r} unknown, taken as fp16")
        kind = "fp16"
    step = facts.coefficients(gpu, model, kind, gpus)
    cost = Cost(
        prefill=step.prefill,
        base=step.base,
        per_sequence=max(step.per_sequence, 0.0),
        per_kv_token=step.per_kv_token,
    )
    reason = f"cost: facts of {gpus} x {gpu}, {model}, {kind}"
    return cost, reason + (f" ({'; '.join(assumed)})" if assumed else "")


def _known_model(name: str) -> bool:
    try:
        facts.model(name)
    except facts.UnknownFactError:
        return False
    return True
