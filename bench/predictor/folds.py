"""Prompts in folds, and a model for each that has not seen its prompts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from model import bootstrap, export, training
from model.core import Core
from model.dataset import Dataset, thin
from model.recorded import Recorded

FOLDS: Final = 5


@dataclass(frozen=True)
class Plan:
    """How much is run."""

    seeds: tuple[int, ...]
    of_a_prompt: int
    """Outputs of one prompt that are trained from."""
    judged: int
    """Outputs of the largest source that are judged."""
    minutes: int
    """Length of the streams with history, at 60 requests a minute."""
    encoded: int
    """Prompts that the small model is asked of."""
    full: bool = True


FULL: Final = Plan(seeds=(2, 3, 4), of_a_prompt=24, judged=16_000, minutes=95, encoded=3_000)
QUICK: Final = Plan(seeds=(2,), of_a_prompt=3, judged=6_000, minutes=40, encoded=200, full=False)


@dataclass(frozen=True)
class Folds:
    """`of_prompt`: the fold of every prompt; `models`: what predicts the prompts of each fold; `factors`."""

    of_prompt: np.ndarray[Any, np.dtype[np.int64]]
    models: list[Any]
    train: np.ndarray[Any, np.dtype[np.int64]]
    """The recorded outputs that all of them were trained from, those of their own fold left out."""
    payload: dict[str, Any] | None = None
    """The first of them as it is exported."""


def assign(prompts: int, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """A fold for each prompt, all of the same size, by the seed."""
    fold = np.arange(prompts) % FOLDS
    return np.random.default_rng(seed).permutation(fold).astype(np.int64)


def exported(core: Core, data: Dataset, name: str) -> dict[str, Any]:
    """A model trained from all rows of a dataset, as it is exported."""
    return export.payload(training.fit(data, core), core, data, name, {})


def open_model(core: Core, data: Dataset, name: str) -> Any:
    """A model trained from all rows of a dataset, as a gateway opens it."""
    return core.build(exported(core, data, name))


def fit(core: Core, recorded: Recorded, plan: Plan, seed: int, tell: Callable[[str], None]) -> Folds:
    """Train a model for each fold, from the prompts of the others."""
    train = thin(recorded.prompt, plan.of_a_prompt, seed)
    data = bootstrap.dataset(core, recorded.take(train), seed + 100)
    of_prompt = assign(len(recorded.texts), seed)
    payloads = []
    for number in range(FOLDS):
        tell(f"seed {seed}: training for fold {number + 1} of {FOLDS}")
        known = data.take(np.flatnonzero(of_prompt[data.group] != number))
        payloads.append(exported(core, known, f"fold-{number}"))
    return Folds(of_prompt, [core.build(payload) for payload in payloads], train, payloads[0])


def judged(recorded: Recorded, plan: Plan, seed: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """The outputs that are judged: of each source at most so many."""
    rng = np.random.default_rng([seed, 7])
    rows = []
    for source in np.unique(recorded.source):
        of_source = np.flatnonzero(recorded.source == source)
        rows.append(rng.permutation(of_source)[: plan.judged])
    return np.sort(np.concatenate(rows))
