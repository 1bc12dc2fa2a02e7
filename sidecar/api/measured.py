"""What is measured of a backend, as the admin API shows it: every value with its age and source, and the
indicators with their limits."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, Field

from sidecar.telemetry.indicators import Indicator
from sidecar.telemetry.readings import Record

MODEL_VALUES: Final = ("context", "capacity", "slots")
ENGINE_VALUES: Final = (
    *("running", "waiting", "paused", "kv_use", "capacity", "reserved_tokens", "held_tokens"),
    *("output_tokens", "prompt_tokens", "prefix_queries", "prefix_hits", "preemptions"),
    *("finished", "aborted", "loaded"),
)
CARD_VALUES: Final = (
    *("cards", "name", "memory_use", "utilization", "sm_active", "tensor_active", "memory_active"),
    *("temperature", "power", "power_limit", "sm_clock", "sm_clock_max", "throttled"),
    *("xid", "ecc_corrected", "ecc_uncorrected", "remap_failed"),
)
CONTAINER_VALUES: Final = ("state", "exit_code", "restarts")


class Measured(BaseModel):
    """One value, how old it is, and who said it."""

    value: float | int | str
    age_ms: float
    source: str


class IndicatorView(BaseModel):
    """A figure with its limit."""

    value: float | None = Field(description="null: not measured")
    limit: float
    unit: str = Field(description="share or ms")
    alert: bool
    text: str = Field(description="what the value is made of, or why there is none")


def measured(record: Record, now: float) -> dict[str, Measured]:
    """Every value that a source told, at monotonic `now`."""
    values: dict[str, Measured] = {}

    def put(reading: Any, names: tuple[str, ...], prefix: str = "") -> None:
        if reading is None:
            return
        age = round(now - reading.at, 1)
        for name in names:
            value = getattr(reading, name)
            if value is not None and value != ():
                shown = ", ".join(value) if isinstance(value, tuple) else value
                values[prefix + name] = Measured(value=shown, age_ms=age, source=reading.source)

    put(record.models, MODEL_VALUES)
    put(record.engine, ENGINE_VALUES)
    put(record.card, CARD_VALUES)
    put(record.container, CONTAINER_VALUES, "container_")
    return values


def indicators(record: Record) -> dict[str, IndicatorView]:
    """The indicators of a backend."""
    return {name: view(found) for name, found in record.indicators.now().items()}


def view(found: Indicator) -> IndicatorView:
    """An indicator as the API shows it."""
    return IndicatorView(
        value=found.value, limit=found.limit, unit=found.unit, alert=found.alert, text=found.text
    )
