"""How good predictions are: error, ranking, coverage, classes. All figures are of one sequence's output in
tokens."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

import numpy as np
from scipy.stats import kendalltau, norm

from model.core import Core, Floats
from model.dataset import CUT, LENGTH, Dataset

THRESHOLD: Final = 50.0
"""Tokens from which an output is of the class "high"."""


@dataclass(frozen=True, slots=True)
class Said:
    """What is predicted of rows, in tokens."""

    mean: Floats
    median: Floats
    q90: Floats


@dataclass(frozen=True, slots=True)
class Scores:
    """`mae`: mean absolute error of the median. `tau`: Kendall's rank correlation. `coverage_q90`: share of
    outputs, not cut by their limit, that do not exceed the 90 % quantile. `pinball`: mean pinball loss of
    the median and the 90 % quantile together. `bias`: sum of the means over the sum of the outputs.
    `precision`, `recall`: of the class "high"."""

    rows: int
    mae: float
    tau: float
    coverage_q90: float
    pinball: float
    bias: float
    precision: float
    recall: float

    def plain(self) -> dict[str, Any]:
        """The figures by name."""
        return asdict(self)


def pinball(actual: Floats, quantile: Floats, level: float) -> Floats:
    """Pinball loss of a quantile at `level` (Koenker and Bassett, 1978), per row."""
    off = actual - quantile
    loss: Floats = np.maximum(level * off, (level - 1) * off)
    return loss


def tau(predicted: Floats, actual: Floats) -> float:
    """Kendall's tau-b; NaN where one side does not vary."""
    return float(kendalltau(predicted, actual).statistic)


def classes(predicted: Floats, actual: Floats, threshold: float = THRESHOLD) -> tuple[float, float]:
    """Precision and recall of "high"; NaN where there is none."""
    said, true = predicted >= threshold, actual >= threshold
    hits = float((said & true).sum())
    precision = hits / said.sum() if said.any() else float("nan")
    recall = hits / true.sum() if true.any() else float("nan")
    return precision, recall


def scores(said: Said, actual: Floats, capped: np.ndarray[Any, np.dtype[np.bool_]]) -> Scores:
    """Score predictions of outputs; `capped` marks those that their limit cut."""
    precision, recall = classes(said.median, actual)
    free = ~capped
    return Scores(
        rows=len(actual),
        mae=float(np.abs(actual - said.median).mean()),
        tau=tau(said.median, actual),
        coverage_q90=float((actual <= said.q90)[free].mean()) if free.any() else float("nan"),
        pinball=float((pinball(actual, said.median, 0.5) + pinball(actual, said.q90, 0.9)).mean()),
        bias=float(said.mean.sum() / max(actual.sum(), 1e-9)),
        precision=precision,
        recall=recall,
    )


def _capped(value: Floats, limit: Floats) -> Floats:
    capped: Floats = np.where(limit >= 0, np.minimum(value, limit), value)
    return capped


def of_model(core: Core, model: Any, data: Dataset, mean_factor: float = 1.0) -> Said:
    """What a model says of rows, evaluated by the gateway's code, without online correction."""
    found = core.evaluate(model, data.vectors, data.words, data.limit)
    middle = np.maximum(data.base + found[:, 0], 0)
    return Said(
        _capped(found[:, 4] * mean_factor, data.limit),
        _capped(np.expm1(middle), data.limit),
        _capped(np.expm1(middle + found[:, 2]), data.limit),
    )


def of_running_figures(core: Core, data: Dataset) -> Said:
    """What running figures alone say: a lognormal around the base, as wide as the model's outputs are."""
    spread = data.vectors[:, core.names.index("model_spread")].astype(np.float64)
    return Said(
        _capped(np.expm1(data.base + spread**2 / 2), data.limit),
        _capped(np.expm1(data.base), data.limit),
        _capped(np.expm1(data.base + norm.ppf(0.9) * spread), data.limit),
    )


def judged(data: Dataset) -> Dataset:
    """The rows whose whole output is known."""
    return data.take(np.flatnonzero(data.ending != CUT))


def evaluate(core: Core, said: Said, data: Dataset) -> Scores:
    """Score what was said of `judged` rows."""
    return scores(said, data.output, data.ending == LENGTH)
