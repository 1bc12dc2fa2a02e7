"""Which variant of a model is preferred: quality while memory lasts, then what saves memory.

Pressure is all that the model holds, on any of its backends, against what the backends of the best quality
could hold: it does not change by where requests are sent, so the preference cannot chase itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from sidecar.control.latch import Latch
from sidecar.control.model_load import BackendUse
from tokenweir.config.control import PrecisionConfig, PrecisionRule
from tokenweir.contract import names

BITS: Final[dict[str, int]] = {"fp32": 32, "fp16": 16, "fp8": 8, "int8": 8, "int4": 4}


def variant(name: str) -> str:
    """The variant that a precision's name means; the name itself, in lower case, where it is not known."""
    name = name.strip().lower()
    return names.PRECISIONS.get(name, name)


class Precision:
    """The preference of one model."""

    def __init__(self) -> None:
        self.pressure = Latch()
        self.preferred = ""
        """The preferred variant; empty: none."""
        self.reason = ""

    def update(self, backends: Sequence[BackendUse], config: PrecisionConfig, now: float) -> bool:
        """Decide; returns whether the preference changed."""
        before = self.preferred
        usable = [one for one in backends if one.usable and one.precision in BITS]
        variants = {one.precision for one in usable}
        if config.rule is PrecisionRule.OFF or len(variants) < 2:
            self.preferred = self.reason = ""
            self.pressure.restore(False, now)
            return before != ""
        quality = max(variants, key=lambda name: (BITS[name], name))
        use = _pressure(usable, quality)
        over = use is not None and use > config.pressure
        below = use is None or use < config.pressure - config.release
        self.pressure.update(over, below, now, stay=config.stay)
        self.preferred = self._choose(usable, variants, quality, config.rule)
        state = "memory pressure" if self.pressure.on else "no memory pressure"
        told = "memory use not told" if use is None else f"{use:.0%} of what {quality} can hold"
        self.reason = f"precision: {self.preferred or 'none'} preferred ({state}: {told})"
        return self.preferred != before

    def passes_over(self, variant: str, model: str) -> str | None:
        """Why a backend with this variant gets requests only where the preferred one has no room."""
        if self.preferred in {"", variant}:
            return None
        return f"precision: {variant or 'not known'}; requests for {model} prefer {self.preferred}"

    def _choose(
        self, usable: Sequence[BackendUse], variants: set[str], quality: str, rule: PrecisionRule
    ) -> str:
        supported = {one.precision for one in usable if one.precision != "fp8" or one.fp8}
        if rule is PrecisionRule.LITERAL:
            wanted = "fp16" if self.pressure.on else "fp8"
            return wanted if wanted in supported else ""
        if not self.pressure.on:
            return quality
        saving = [name for name in supported if BITS[name] < BITS[quality]]
        return min(saving, key=lambda name: (BITS[name], name != "fp8")) if saving else quality


def _pressure(usable: Sequence[BackendUse], quality: str) -> float | None:
    """All tokens in use over the capacity of the best quality; by shares of a backend where a capacity is not
    known."""
    told = [one for one in usable if one.use is not None]
    by_tokens = all(one.capacity for one in told)
    size = [float(one.capacity or 1) if by_tokens else 1.0 for one in told]
    used = sum((one.use or 0.0) * room for one, room in zip(told, size, strict=True))
    best = sum(room for one, room in zip(told, size, strict=True) if one.precision == quality)
    return used / best if best > 0 else None
