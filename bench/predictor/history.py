"""Streams with history: applications with keys, system prompts and sessions, 60 requests a minute in all.

Every source has the same share of the requests, every variant of a model is an application. Each request is
predicted by the model of its prompt's fold, so none was trained on its prompt; what is known besides is what
the worker has seen come out before. "Model" is the public name that a gateway knows (several applications
share one)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from bench.predictor import baselines, figures
from bench.predictor.figures import Judged
from bench.predictor.folds import Folds, Plan
from model import chats
from model.core import Core, Floats, Predictions, Requests, Stream
from model.recorded import Recorded

PER_MINUTE: Final = 60
WARM_UP_MINUTES: Final = 5
APPLICATIONS: Final = 24
"""Variants of the largest source in one stream."""
DRIFT: Final = 2.0
AFTER_DRIFT: Final = 500


@dataclass(frozen=True)
class Played:
    """A stream and what was predicted of it: with the trained model, and by running figures only."""

    recorded: Recorded
    requests: Requests
    stream: Stream
    trained: Predictions
    running: Predictions

    @property
    def order(self) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Rows in the order of arrival."""
        return np.argsort(self.stream.arrival)


def choose(recorded: Recorded, plan: Plan, seed: int) -> Recorded:
    """The outputs of a stream: as many of each source, of the largest from some of its variants."""
    rng = np.random.default_rng([seed, 9])
    sources = np.unique(recorded.source)
    share = plan.minutes * PER_MINUTE // len(sources)
    rows = []
    for source in sources:
        of_source = np.flatnonzero(recorded.source == source)
        variants = rng.permutation(np.unique(recorded.variant[of_source]))[:APPLICATIONS]
        of_source = of_source[np.isin(recorded.variant[of_source], variants)]
        rows.append(rng.permutation(of_source)[:share])
    return recorded.take(np.sort(np.concatenate(rows)))


def play(
    core: Core, recorded: Recorded, folds: Folds, plan: Plan, seed: int, *, factor: float = 1.0
) -> Played:
    """One stream; `factor` multiplies the outputs of its second half."""
    rows = choose(recorded, plan, seed)
    fit = folds.of_prompt[rows.prompt]
    requests, stream = chats.stream(core, rows, seed + 500, known=1.0, fit=fit)
    if factor != 1.0:
        late = stream.arrival > np.median(stream.arrival)
        output = np.where(late, np.round(factor * stream.output), stream.output)
        stream = replace(
            stream, output=output, limit=np.full(len(output), -1.0), ending=np.zeros(len(output), np.uint8)
        )
    none = replace(stream, fit=np.full(len(fit), -1))
    return Played(
        rows,
        requests,
        stream,
        core.replay(core.new_state(), folds.models, requests, stream),
        core.replay(core.new_state(), [], requests, none),
    )


def by_source(core: Core, played: Played) -> dict[str, dict[str, dict[str, float]]]:
    """The figures by method, then source."""
    stream, order = played.stream, played.order
    reference = baselines.running_median(played.recorded.model.tolist(), stream.output, order)
    constant = np.full(len(order), np.quantile(stream.output, 0.9))
    of = {
        "source": played.recorded.source,
        "output": stream.output,
        "reference": reference,
        "constant": constant,
        "free": stream.ending == 0,
    }

    def judged(median: Floats, q90: Floats | None = None) -> dict[str, dict[str, float]]:
        return figures.by_source(Judged(**of, median=median, q90=q90))

    return {
        "tokenweir": judged(played.trained.median, played.trained.q90),
        "running figures": judged(played.running.median, played.running.q90),
        "median per model": judged(reference),
        "1.5 x input": judged(baselines.by_input(played.requests)),
        "log-bucket histogram": judged(baselines.histogram(played.requests, stream.output, order)),
        "three rules": judged(
            baselines.rules(core, played.requests, stream.limit, stream.output, order=order)
        ),
    }


def deviation(stream: Stream, mean: Floats) -> dict[str, float]:
    """The prediction deviation, |sum predicted - sum actual| / sum actual, over the minutes after a warm-up,
    and the per-request error, sum of absolute errors over the sum of the outputs."""
    minute = (stream.arrival / 60).astype(np.int64)
    actual = np.bincount(minute, weights=stream.output)
    predicted = np.bincount(minute, weights=mean)
    whole = slice(WARM_UP_MINUTES, len(actual) - 1)
    off = np.abs(predicted - actual)[whole] / np.maximum(actual[whole], 1)
    late = minute >= WARM_UP_MINUTES
    error = np.abs(mean - stream.output)[late].sum() / stream.output[late].sum()
    return {
        "prediction_deviation": float(off.mean()),
        "prediction_deviation_p95": float(np.quantile(off, 0.95)),
        "minutes_within_20_percent": float((off <= 0.2).mean()),
        "per_request_error": float(error),
    }


def drift(core: Core, recorded: Recorded, folds: Folds, plan: Plan, seed: int) -> dict[str, float]:
    """Coverage where the outputs double in the middle of a stream: before, in the first 500 completions
    after, and from then on."""
    played = play(core, recorded, folds, plan, seed, factor=DRIFT)
    order = played.order
    covered = (played.stream.output <= played.trained.q90)[order]
    half = len(order) // 2
    return {
        "coverage_before": float(covered[half // 2 : half].mean()),
        "coverage_first_500_after": float(covered[half : half + AFTER_DRIFT].mean()),
        "coverage_later": float(covered[half + AFTER_DRIFT :].mean()),
    }
