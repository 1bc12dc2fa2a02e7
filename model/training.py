"""The fit: a linear model of hashed words, whose score is one feature of three ensembles of boosted trees.

The target is ln(1 + output) less the request's base, so the trees learn what a request has beyond the
running figures of its model, key, system prompt and session. The ensembles are fitted to the pinball loss of
the median and of the 10 % and 90 % quantiles (Koenker and Bassett, 1978); the shape between them is measured
on rows that their models did not see."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold

from model.core import Core, Floats, Words
from model.dataset import CUT, STOP, Dataset

Progress = Callable[[str], None]

LEAST_WIDTH: Final = 0.05
"""Least distance of the outer quantiles from the median, in ln(1 + tokens)."""
FOLDS: Final = 4
STEPS: Final = FOLDS + 2
"""How often `fit` tells its progress."""
LEAST_ROWS: Final = 200
LEAST_FREQUENCY: Final = 2
"""Different requests that a word must stand in to be weighed at all."""
MOST_TARGET: Final = 1.0
"""Where the linear model's target is cut off, so that a few odd outputs do not bend the weights of rare
words."""
PRIOR_STRENGTH: Final = 20.0
"""Outputs as which the mean of all models counts in the mean of one."""


class TooFewError(ValueError):
    """Not enough rows to train from."""


@dataclass(frozen=True, slots=True)
class Options:
    """The shape of the model. Some 150 trees in all fit the time that a request has."""

    median_trees: int = 90
    lower_trees: int = 20
    upper_trees: int = 35
    leaves: int = 16
    depth: int = 6
    rate: float = 0.09
    outer_rate: float = 0.1
    least_leaf: int = 60
    ridge: float = 1.5
    rarity: float = 0.7
    """How much more a rare word weighs: the power of its inverse document frequency."""
    seed: int = 1


@dataclass(frozen=True, slots=True)
class Priors:
    """Mean ln(1 + output) by public model, by family and of all; the spread of all."""

    models: dict[str, float]
    families: dict[str, float]
    mean: float
    spread: float


@dataclass(frozen=True, slots=True)
class Linear:
    """The linear model of words: a request scores `bias + sum of weights / sqrt(sum of squares)` over its
    words.

    `weights` and `squares` have an entry for every index; both are 0 for words that were hardly seen.
    """

    bias: float
    weights: npt.NDArray[np.float32]
    squares: npt.NDArray[np.float32]

    def score(self, words: Words) -> Floats:
        """The score of each request, in the precision of the exported numbers."""
        rows = np.repeat(np.arange(len(words.count)), words.count)
        size = len(words.count)
        weight = np.bincount(rows, self.weights[words.index].astype(np.float64), size)
        square = np.bincount(rows, self.squares[words.index].astype(np.float64), size)
        found: Floats = self.bias + weight / np.sqrt(np.maximum(square, 1e-9))
        return found


@dataclass(frozen=True, slots=True)
class Fitted:
    """What was fitted; `export.py` writes it."""

    linear: Linear
    median: HistGradientBoostingRegressor
    lower: HistGradientBoostingRegressor
    upper: HistGradientBoostingRegressor
    low: Floats
    high: Floats
    mean_factor: float
    priors: Priors
    rows: int
    gains: dict[str, float]


def _linear(data: Dataset, target: Floats, space: int, options: Options) -> Linear:
    """Ridge regression on words that are weighed by inverse document frequency, each request's to length
    1."""
    words = data.words
    one_of_each = np.unique(data.group, return_index=True)[1]
    frequency = np.bincount(words.take(one_of_each).index, minlength=space)
    rarity = (np.log((1 + len(one_of_each)) / (1 + frequency)) + 1) ** options.rarity
    rarity[frequency < LEAST_FREQUENCY] = 0
    rows = np.repeat(np.arange(len(words.count)), words.count)
    value = rarity[words.index]
    length = np.sqrt(np.maximum(np.bincount(rows, value**2, len(words.count)), 1e-9))
    matrix = sparse.csr_matrix(
        (value / length[rows], words.index.astype(np.int32), np.concatenate(([0], np.cumsum(words.count)))),
        shape=(len(words.count), space),
    )
    model = Ridge(alpha=options.ridge, solver="sparse_cg", tol=1e-4)
    model.fit(matrix, np.clip(target, -MOST_TARGET, MOST_TARGET), sample_weight=_group_weight(data.group))
    weights = np.asarray(model.coef_) * rarity
    return Linear(float(model.intercept_), weights.astype(np.float32), (rarity**2).astype(np.float32))


def _group_weight(group: npt.NDArray[np.int64]) -> Floats:
    """Rows that ask the same share one voice, growing with the root of their number."""
    _, inverse, counts = np.unique(group, return_inverse=True, return_counts=True)
    weight: Floats = 1 / np.sqrt(counts[inverse])
    return weight


def impute(residual: Floats, ended: npt.NDArray[np.bool_], seed: int) -> Floats:
    """Residuals where those of outputs that were cut short are drawn from the longer ones.

    A cut output only tells that it would have been longer: its residual is drawn from the Kaplan-Meier
    estimate of the residuals' distribution beyond it (Kaplan and Meier, 1958), by the seed."""
    if ended.all() or not ended.any():
        return residual
    order = np.lexsort((~ended, residual))
    sorted_residual, sorted_ended = residual[order], ended[order]
    n = len(residual)
    at_risk = n - np.arange(n)
    survival = np.cumprod(np.where(sorted_ended, 1 - 1 / at_risk, 1.0))
    before = np.concatenate(([1.0], survival[:-1]))
    mass = np.where(sorted_ended, before - survival, 0.0)
    cumulative = np.cumsum(mass)
    rng = np.random.default_rng(seed)
    filled = residual.copy()
    for place in np.flatnonzero(~sorted_ended):
        left = cumulative[-1] - cumulative[place]
        if left > 1e-9:
            drawn = cumulative[place] + rng.random() * left
            at = min(int(np.searchsorted(cumulative, drawn)), n - 1)
            filled[order[place]] = max(sorted_residual[at], residual[order[place]])
    return filled


def _trees(quantile: float, count: int, rate: float, options: Options) -> HistGradientBoostingRegressor:
    return HistGradientBoostingRegressor(
        loss="quantile",
        quantile=quantile,
        max_iter=count,
        learning_rate=rate,
        max_leaf_nodes=options.leaves,
        max_depth=options.depth,
        min_samples_leaf=options.least_leaf,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=options.seed,
    )


def _ensembles(x: Floats, target: Floats, options: Options) -> list[HistGradientBoostingRegressor]:
    return [
        _trees(0.5, options.median_trees, options.rate, options).fit(x, target),
        _trees(0.1, options.lower_trees, options.outer_rate, options).fit(x, target),
        _trees(0.9, options.upper_trees, options.outer_rate, options).fit(x, target),
    ]


def _widths(median: Floats, lower: Floats, upper: Floats) -> tuple[Floats, Floats]:
    return np.maximum(LEAST_WIDTH, median - lower), np.maximum(LEAST_WIDTH, upper - median)


def _side(distances: Floats, steps: int) -> Floats:
    """The middles of `steps` equal shares of the distances, rising."""
    if len(distances) == 0:
        return np.arange(1, steps + 1) / steps
    levels = (np.arange(steps) + 0.5) / steps
    return np.clip(np.maximum.accumulate(np.quantile(distances, levels)), 0, 100)


def shape(
    residual: Floats, median: Floats, lower: Floats, upper: Floats, steps: int
) -> tuple[Floats, Floats]:
    """How outputs lie between and beyond the quantiles: distances from the median in units of the widths."""
    down, up = _widths(median, lower, upper)
    off = residual - median
    return _side(-off[off < 0] / down[off < 0], steps), _side(off[off >= 0] / up[off >= 0], steps)


def _mean(data: Dataset, median: Floats, widths: tuple[Floats, Floats], low: Floats, high: Floats) -> Floats:
    """The mean of min(output, limit) of each row, before its factor."""
    log_limit = np.where(data.limit >= 0, np.log1p(np.maximum(data.limit, 0)), 17)
    middle = data.base + median
    points = [middle - widths[0] * step for step in low] + [middle + widths[1] * step for step in high]
    total: Floats = sum((np.expm1(np.clip(point, 0, log_limit)) for point in points), np.zeros(len(data)))
    return total / len(points)


def priors(data: Dataset, core: Core) -> Priors:
    """Means by model and family, drawn towards that of all where there are few."""
    family = core.require("tokenweir.core.prediction.predictor").family
    value = np.log1p(data.output)
    mean, spread = float(value.mean()), float(max(value.std(), 0.05))
    models: dict[str, float] = {}
    by_family: dict[str, list[float]] = {}
    for name in np.unique(data.model):
        found = value[data.model == name]
        models[str(name)] = float((found.sum() + PRIOR_STRENGTH * mean) / (len(found) + PRIOR_STRENGTH))
        by_family.setdefault(family(str(name).encode()).decode(), []).append(models[str(name)])
    families = {name: float(np.mean(means)) for name, means in by_family.items() if name}
    return Priors(models, families, mean, spread)


def _prepare(
    data: Dataset, core: Core, options: Options, progress: Progress
) -> tuple[Floats, Floats, list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]]]:
    """The target, the features with the scores of words that did not see their rows, and the folds."""
    target = impute(np.log1p(data.output) - data.base, data.ending == STOP, options.seed)
    x = data.vectors.astype(np.float64)
    folds = list(GroupKFold(FOLDS, shuffle=True, random_state=options.seed).split(x, groups=data.group))
    progress("the words")
    score = np.zeros(len(data))
    for known, held in folds:
        score[held] = _linear(data.take(known), target[known], core.space, options).score(
            data.words.take(held)
        )
    # The gateway's vector is in single precision.
    x[:, -1] = score.astype(np.float32)
    return target, x, folds


def held_out_medians(data: Dataset, core: Core, options: Options | None = None) -> Floats:
    """The median of each row by trees that did not see its group, against the base."""
    options = options or Options()
    target, x, folds = _prepare(data, core, options, lambda _: None)
    found = np.zeros(len(data))
    for known, held in folds:
        trees = _trees(0.5, options.median_trees, options.rate, options)
        found[held] = trees.fit(x[known], target[known]).predict(x[held])
    return found


def fit(
    data: Dataset, core: Core, options: Options | None = None, progress: Progress = lambda _: None
) -> Fitted:
    """Train. The rows' `word_score` is not read; outputs cut short by a client or a fault count as "longer
    than", as do those that their limit cut, since what is predicted is the length before the limit.

    Raises TooFewError.
    """
    options = options or Options()
    if len(data) < LEAST_ROWS or len(np.unique(data.group)) < 2 * FOLDS:
        raise TooFewError(
            f"{len(data)} completions of {len(np.unique(data.group))} different requests; at least "
            f"{LEAST_ROWS} of {2 * FOLDS} are needed"
        )
    target, x, folds = _prepare(data, core, options, progress)
    held_out = np.zeros((3, len(data)))
    for number, (known, held) in enumerate(folds):
        progress(f"trees without part {number + 1} of {FOLDS} of the rows, to see how they do on it")
        for k, ensemble in enumerate(_ensembles(x[known], target[known], options)):
            held_out[k, held] = ensemble.predict(x[held])
    middle, lower_edge, upper_edge = held_out
    low, high = shape(target, middle, lower_edge, upper_edge, core.steps)
    mean = _mean(data, middle, _widths(middle, lower_edge, upper_edge), low, high)
    counted = data.ending != CUT
    factor = float(np.clip(data.output[counted].sum() / mean[counted].sum(), 0.1, 10))
    progress("trees of all its rows")
    median, lower, upper = _ensembles(x, target, options)
    return Fitted(
        linear=_linear(data, target, core.space, options),
        median=median,
        lower=lower,
        upper=upper,
        low=low,
        high=high,
        mean_factor=factor,
        priors=priors(data, core),
        rows=len(data),
        gains=_gains(core.names, median),
    )


def _gains(names: list[str], ensemble: HistGradientBoostingRegressor) -> dict[str, float]:
    """Each feature's share of what the cuts of the median's trees gained."""
    gains = np.zeros(len(names))
    for (tree,) in ensemble._predictors:
        cuts = tree.nodes[tree.nodes["is_leaf"] == 0]
        np.add.at(gains, cuts["feature_idx"], cuts["gain"])
    total = gains.sum()
    return {name: float(gain / total) for name, gain in zip(names, gains, strict=True)} if total > 0 else {}
