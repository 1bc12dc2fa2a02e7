"""The figures of the bench, per source and overall."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from model.core import Floats
from model.evaluation import classes, pinball, tau
from model.recorded import Recorded

OVERALL: Final = "overall"
MOST_FOR_TAU: Final = 20_000
"""Rows that a rank correlation is computed from; it takes longer than all the rest."""
Mask = np.ndarray[Any, np.dtype[np.bool_]]


@dataclass(frozen=True)
class Judged:
    """Predictions of rows. `median`, `q90` (None where a method has none) in tokens; `reference`: the
    running median per model; `constant`: the 90 % quantile of what was known of the row's model; `free`: not
    cut by a limit."""

    source: np.ndarray[Any, np.dtype[np.str_]]
    output: Floats
    median: Floats
    reference: Floats
    q90: Floats | None = None
    constant: Floats | None = None
    free: Mask | None = None


def _ratio(over: float, under: float) -> float:
    return 1 - over / under if under > 0 else float("nan")


def _figures(found: Judged, rows: Mask) -> dict[str, float]:
    output, median = found.output[rows], found.median[rows]
    mae = float(np.abs(output - median).mean())
    precision, recall = classes(median, output)
    figures = {
        "rows": int(rows.sum()),
        "mae": mae,
        "mae_vs_median": _ratio(mae, float(np.abs(output - found.reference[rows]).mean())),
        "kendall_tau": tau(median[:MOST_FOR_TAU], output[:MOST_FOR_TAU]),
        "class_precision": precision,
        "class_recall": recall,
    }
    if found.q90 is not None:
        free = rows if found.free is None else rows & found.free
        figures["coverage_q90"] = float((found.output[free] <= found.q90[free]).mean())
        if found.constant is not None:
            loss = float(pinball(output, found.q90[rows], 0.9).mean())
            constant = float(pinball(output, found.constant[rows], 0.9).mean())
            figures["pinball_q90_vs_constant"] = _ratio(loss, constant)
    return figures


def by_source(found: Judged) -> dict[str, dict[str, float]]:
    """The figures of each source, and of all rows together."""
    figures = {str(name): _figures(found, found.source == name) for name in np.unique(found.source)}
    figures[OVERALL] = _figures(found, np.ones(len(found.output), bool))
    return figures


def average(runs: list[dict[str, dict[str, float]]]) -> dict[str, dict[str, float]]:
    """The mean of several seeds' figures, and as `NAME_spread` the largest less the least."""
    found: dict[str, dict[str, float]] = {}
    for source in runs[0]:
        found[source] = {}
        for name in runs[0][source]:
            values = [run[source][name] for run in runs]
            found[source][name] = float(np.mean(values))
            if len(values) > 1 and name != "rows":
                found[source][f"{name}_spread"] = float(max(values) - min(values))
    return found


def ceilings(recorded: Recorded) -> dict[str, float]:
    """Kendall's tau of two runs of the same prompt by the same variant of a model: no predictor that sees
    the prompt can rank better. Only of sources that have such pairs."""
    found: dict[str, float] = {}
    pairs: list[tuple[Floats, Floats]] = []
    for source in np.unique(recorded.source):
        rows = np.flatnonzero(recorded.source == source)
        same = np.unique(recorded.variant[rows], return_inverse=True)[1] * len(recorded.texts)
        key = same + recorded.prompt[rows]
        order = np.argsort(key, kind="stable")
        rows, key = rows[order], key[order]
        first = np.concatenate(([True], key[1:] != key[:-1]))
        second = np.concatenate(([False], first[:-1])) & ~first
        second_rows = np.flatnonzero(second)
        if len(second_rows) < 100:
            continue
        pair = recorded.output[rows[second_rows - 1]], recorded.output[rows[second_rows]]
        pairs.append(pair)
        found[str(source)] = tau(pair[0][:MOST_FOR_TAU], pair[1][:MOST_FOR_TAU])
    if pairs:
        one, other = (np.concatenate(side)[:MOST_FOR_TAU] for side in zip(*pairs, strict=True))
        found[OVERALL] = tau(one, other)
    return found
