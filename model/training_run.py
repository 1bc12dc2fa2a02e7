"""One training: split, fit, judge against what is in service, and the model of all rows."""

from __future__ import annotations

import datetime
import hashlib
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from model import evaluation, export, training
from model.core import Core, Floats
from model.dataset import Dataset
from model.evaluation import Said, Scores
from model.publication import InService

HELD_OUT: Final = 0.2
LEAST_HELD_OUT, MOST_HELD_OUT = 0.05, 0.5
"""Shares of all rows between which those that ask what the newest ask are held out: where the newest ask what
all others ask, rows are drawn."""
LEAST_JUDGED: Final = 100
"""Rows that the model in service has not seen, without which the two are not compared."""
WORSE: Final = 1.01
"""How much larger than that of the model in service a model's loss may be: less is noise."""
MOST_ROWS: Final = 200_000
"""Rows that are trained from at most; of more, the newest."""


@dataclass(frozen=True, slots=True)
class Trained:
    """What came of a training. `scores` on the held-out rows: by the new model's twin (which did not see
    them), by the model in service (None: none, or it cannot be evaluated), by running figures."""

    version: str
    document: str
    payload: dict[str, Any]
    scores: Scores
    service: Scores | None
    running: Scores
    gains: dict[str, float]
    levels: Floats
    reached: Floats
    seen: bytes
    """Digests of the rows that it was trained from (uint32)."""
    against: Scores
    """The twin's scores on those rows that `service` is judged by: what the model in service has not seen."""

    @property
    def worse_than(self) -> str | None:
        """What it is worse than, or None where it may be published."""
        if self.service is not None and self.against.pinball > WORSE * self.service.pinball:
            return "the model in service"
        if self.scores.pinball > WORSE * self.running.pinball:
            return "running figures"
        return None


def split(data: Dataset, by_time: bool, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows to train from and rows to judge by: the newest, or (where these ask nothing new) drawn by the
    seed. Requests that ask the same never stand on both sides."""
    groups = data.group
    names = np.unique(groups)
    newest = np.random.default_rng(seed).permutation(names)[: max(1, int(len(names) * HELD_OUT))]
    if by_time:
        latest = np.unique(groups[int(len(data) * (1 - HELD_OUT)) :])
        # What is asked all the time would leave nothing to train from: such groups stay with the known rows.
        often = np.bincount(groups, minlength=int(groups.max()) + 1)
        latest = latest[often[latest] <= max(1, HELD_OUT * len(data) / 10)]
        if LEAST_HELD_OUT <= np.isin(groups, latest).mean() <= MOST_HELD_OUT:
            newest = latest
    held = np.isin(groups, newest)
    return np.flatnonzero(~held), np.flatnonzero(held)


def _counted(progress: Callable[[str], None], steps: int) -> Callable[[str], None]:
    """`progress` with the number of the step before its text."""
    numbers = itertools.count(1)
    return lambda text: progress(f"{next(numbers)} of {steps}: {text}")


def run(
    data: Dataset,
    core: Core,
    *,
    about: dict[str, Any],
    in_service: InService | None,
    by_time: bool,
    options: training.Options | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Trained:
    """Train on a dataset. Raises TooFewError."""
    options = options or training.Options()
    if len(data) > MOST_ROWS:
        data = data.take(np.arange(len(data) - MOST_ROWS, len(data)))
    known, held = split(data, by_time, options.seed)
    if len(held) == 0 or len(known) < training.LEAST_ROWS:
        raise training.TooFewError(
            f"{len(data)} completions of {len(np.unique(data.group))} different requests leave too few to "
            f"judge a model by; some {math.ceil(training.LEAST_ROWS / (1 - HELD_OUT))} are needed"
        )
    judged = evaluation.judged(data.take(held))
    step = _counted(progress, 2 * training.STEPS)
    twin = training.fit(data.take(known), core, options, lambda text: step(f"model to be judged: {text}"))
    twin_model = core.build(export.payload(twin, core, judged, "twin", {}))

    def score(rows: Dataset) -> Scores:
        said = evaluation.of_model(core, twin_model, rows, twin.mean_factor)
        return evaluation.evaluate(core, said, rows)

    unseen = judged if in_service is None else _unseen(judged, in_service, core)
    levels, reached = _calibration(core, twin_model, twin, judged)
    fitted = training.fit(data, core, options, lambda text: step(f"model to be used: {text}"))
    version = _version(data)
    payload = export.payload(fitted, core, data, version, about)
    core.build(payload)  # what a gateway would refuse is not published
    return Trained(
        version=version,
        document=export.envelope(payload, core),
        payload=payload,
        scores=score(judged),
        service=_in_service(core, in_service, unseen),
        against=score(unseen) if len(unseen) else score(judged),
        running=evaluation.evaluate(core, evaluation.of_running_figures(core, judged), judged),
        seen=np.unique(data.digests(core.past)).astype("<u4").tobytes(),
        gains=fitted.gains,
        levels=levels,
        reached=reached,
    )


def _unseen(judged: Dataset, service: InService, core: Core) -> Dataset:
    """The rows that the model in service was not trained from: on the others it would seem better than it
    is."""
    return judged.take(np.flatnonzero(~np.isin(judged.digests(core.past), service.seen)))


def _in_service(core: Core, service: InService | None, judged: Dataset) -> Scores | None:
    if service is None or len(judged) < LEAST_JUDGED:
        return None
    try:
        model = core.open(service.envelope, service.payload)
    except ValueError:
        return None  # made for other features: it cannot serve on, and cannot be compared
    factor = float(service.payload["shape"]["mean_factor"])
    said: Said = evaluation.of_model(core, model, judged, factor)
    return evaluation.evaluate(core, said, judged)


def _calibration(core: Core, model: Any, fitted: training.Fitted, data: Dataset) -> tuple[Floats, Floats]:
    """Shares of outputs below the predicted quantiles: the middles of the shape's steps, and the three
    trained ones."""
    found = core.evaluate(model, data.vectors, data.words, data.limit)
    steps = core.steps
    lower = [(0.5 - (k + 0.5) / (2 * steps), -fitted.low[k], 1) for k in range(steps)]
    upper = [(0.5 + (k + 0.5) / (2 * steps), fitted.high[k], 2) for k in range(steps)]
    points = sorted([*lower, (0.5, 0.0, 1), *upper])
    value = np.log1p(data.output)
    middle = data.base + found[:, 0]
    reached = [float((value <= middle + distance * found[:, side]).mean()) for _, distance, side in points]
    return np.array([level for level, _, _ in points]), np.array(reached)


def _version(data: Dataset) -> str:
    now = datetime.datetime.now(datetime.UTC).strftime("%Y%m%dT%H%M%SZ")
    digest = hashlib.sha256(data.vectors.tobytes() + data.output.tobytes()).hexdigest()
    return f"{now}-{digest[:8]}"
