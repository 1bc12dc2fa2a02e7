"""What work costs on a backend: start coefficients from the table of GPU and model facts, then fitted to the
engine's own counters (`cost_fit.py`), and checked against what the completions took."""

from __future__ import annotations

import math
from typing import Final

from sidecar.control.cost_fit import CostFit, Step
from sidecar.control.engine_steps import ROUGH, mean_step, prompt_step
from sidecar.control.hardware import Hardware
from sidecar.telemetry.readings import EngineReading, Record
from tokenweir import facts
from tokenweir.contract.records import Completion, Cost

DEFAULT_GPU: Final = "A100-80G"
DEFAULT_MODEL: Final = "llama-3-8b"
"""Assumed of what nobody tells. All unknown backends cost the same, so they are treated alike."""
CHECK_MEMORY: Final = 50
"""Completions that count in the check: the weight of one falls to 1/e after so many."""
LEAST_OUTPUT: Final = 8
"""A shorter output tells little of the time per token."""
SHOWN_RETURN: Final = 0.98
FITTED_FROM: Final = 3
"""Observations from which the fit is used and told."""


class CostEstimate:
    """The cost coefficients of one backend."""

    def __init__(self) -> None:
        self._basis: Hardware | None = None
        self._start_reason = ""
        self._fit: CostFit | None = None
        self._before: EngineReading | None = None
        self._step_ms: float | None = None
        """What a step took lately."""
        self._check: float | None = None
        """Mean of ln(time per token of the completions / what a step took meanwhile)."""
        self.checked = 0

    @property
    def fit(self) -> CostFit | None:
        """The fit; None before the backend's models are known."""
        return self._fit

    def observe(self, record: Record, capacity: int | None, now: float) -> None:
        """Take a look at the engine that was just had."""
        reading = record.engine
        before, self._before = self._before, reading
        if reading is None or before is None or reading.at <= before.at:
            return
        prompt = prompt_step(before, reading, capacity)
        if prompt is not None and self._fit is not None and self._fit.mostly_prompt(prompt):
            self._fit.observe(prompt, now)
        step = mean_step(before, reading, capacity)
        if step is None:
            return
        self._step_ms = step.ms if self._step_ms is None else self._step_ms + 0.2 * (step.ms - self._step_ms)
        if self._fit is not None:
            self._fit.observe(step, now)

    def completed(self, record: Completion, in_flight: float, held: float, told: bool, now: float) -> None:
        """A request ended: check the fit by it. Where the engine itself tells nothing (`told` is false) it
        is the only word there is, and counts as a rough observation at the load that the gateways know."""
        if record.output is None or record.ttft_ms is None or not record.stream:
            return
        if record.output < LEAST_OUTPUT or record.total_ms <= record.ttft_ms:
            return
        per_token = (record.total_ms - record.ttft_ms) * record.n / (record.output - 1)
        if not told:
            if self._fit is not None:
                self._fit.observe(Step(per_token, max(in_flight, 1.0), held, 0.0, ROUGH), now)
            return
        if self._step_ms is None or self._step_ms <= 0 or per_token <= 0:
            return
        ratio = math.log(per_token / self._step_ms)
        self.checked += 1
        weight = 1 / min(self.checked, CHECK_MEMORY)
        self._check = ratio if self._check is None else self._check + weight * (ratio - self._check)

    @property
    def check(self) -> float | None:
        """Time per token of the completions over what steps took meanwhile; None before any."""
        return None if self._check is None else math.exp(self._check)

    def of(self, known: Hardware, now: float | None = None, throttled: bool = False) -> tuple[Cost, str]:
        """Coefficients and their reason, at monotonic `now` in ms. `throttled`: its GPU says that it is held
        back, so one that was slow still is, with work or without."""
        if self._fit is None or known != self._basis:
            self._basis = known
            start, self._start_reason = start_cost(known.gpu, known.model, known.precision, known.gpus)
            if self._fit is None or self._fit.start != start:
                self._fit = CostFit(start)
        at = None if throttled else now
        return self._fit.cost(at), self._reason(self._fit, at)

    def _reason(self, fit: CostFit, now: float | None) -> str:
        if fit.observations < FITTED_FROM:
            return f"cost: {self._start_reason}"
        base = fit.uncertainty()["base"]
        returned = 1.0 if now is None else fit.returned(now)
        text = (
            f"cost: {fit.factor() * returned:.2f} times {self._start_reason}, "
            f"fitted to {fit.observations} looks, +-{base:.0%}"
        )
        if returned < SHOWN_RETURN:
            text += f" (it was {fit.factor():.2f} when it last had work)"
        check = self.check
        return text if check is None else f"{text}; completions took {check:.2f} times that per token"


def start_cost(gpu: str, model: str, precision: str, gpus: int) -> tuple[Cost, str]:
    """Coefficients of a kind of GPU and a model, by the table; what is unknown is taken to be the default,
    and the reason says so."""
    assumed: list[str] = []
    try:
        gpu = facts.gpu(gpu).name
    except facts.UnknownFactError:
        assumed.append(
            f"GPU {gpu!r} unknown, taken as {DEFAULT_GPU}" if gpu else f"GPU not told, taken as {DEFAULT_GPU}"
        )
        gpu = DEFAULT_GPU
    try:
        model = facts.model(model).name
    except facts.UnknownFactError:
        assumed.append(
            f"model {model!r} unknown, taken as {DEFAULT_MODEL}"
            if model
            else f"model not known, taken as {DEFAULT_MODEL}"
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
    reason = f"facts of {gpus} x {gpu}, {model}, {kind}"
    return cost, reason + (f" ({'; '.join(assumed)})" if assumed else "")
