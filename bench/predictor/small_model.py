"""What the small model adds: its corrections of medians whose trees had not seen the prompts."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from bench.predictor.folds import FOLDS, Plan
from bench.predictor.held_out import Asked
from model.core import Floats
from model.evaluation import tau
from model.recorded import Recorded
from model.small import fit
from model.small.encoder import SIZE, Array, Encoder, missing

Rows = np.ndarray[Any, np.dtype[np.int64]]


@cache
def _encoder() -> Encoder:
    return Encoder()


_known: dict[int, Array] = {}
"""Encodings by prompt: the seeds share them."""
_took: list[float] = []
"""CPU ms of each."""


def _encode(texts: list[str], prompts: Rows) -> Array:
    """The encodings, a row for each text; zeros for those not asked of."""
    found = np.zeros((len(texts), SIZE), np.float32)
    for prompt in prompts:
        if prompt not in _known:
            began = time.process_time()
            _known[int(prompt)] = _encoder().encode(fit.sent(texts[prompt]))
            _took.append(1000 * (time.process_time() - began))
        found[prompt] = _known[int(prompt)]
    return found


def measure(
    recorded: Recorded, asked: Asked, of_prompt: Rows, plan: Plan, tell: Callable[[str], None]
) -> dict[str, float]:
    """Errors and ranks of the same rows before and with the head's corrections, the head of each fold fitted
    to the prompts of the others. Empty where the small model is not installed."""
    if missing():
        tell(f"the small model is left out: {', '.join(missing())} not installed")
        return {}
    prompts = np.random.default_rng(1).permutation(np.unique(asked.prompt))[: plan.encoded]
    tell(f"encoding {len(prompts)} prompts")
    encodings = _encode(recorded.texts, prompts)
    rows = np.isin(asked.prompt, prompts)
    prompt, output, median = asked.prompt[rows], asked.output[rows], asked.median[rows]
    residual = np.log1p(output) - np.log1p(median)
    corrected: Floats = median.copy()
    for fold in range(FOLDS):
        late = of_prompt[prompt] == fold
        weights = fit.weights(encodings, prompt[~late], residual[~late])
        correction = encodings[prompt[late]] @ weights[:-1] + weights[-1]
        corrected[late] = np.expm1(np.maximum(np.log1p(median[late]) + correction, 0))
    before, after = np.abs(output - median).mean(), np.abs(output - corrected).mean()
    most = 20_000
    return {
        "rows": float(len(output)),
        "mae_before": float(before),
        "mae_with": float(after),
        "gain": float(1 - after / before),
        "kendall_tau_before": tau(median[:most], output[:most]),
        "kendall_tau_with": tau(corrected[:most], output[:most]),
        "encode_cpu_ms_p50": float(np.median(_took)),
    }
