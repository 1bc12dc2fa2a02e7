"""What other routers predict by, on the same rows: medians, rules, histograms, and an offline model of texts.

Those that learn see outputs in the order of time, each after it was predicted, as a router would.
"""

from __future__ import annotations

import bisect
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import Ridge
from sklearn.model_selection import GroupKFold

from model.core import Core, Floats, Requests

Rows = np.ndarray[Any, np.dtype[np.int64]]

UNKNOWN: Final = 129.0
"""Tokens before anything is known: the median of the Azure conversation trace of 2023."""
INPUT_FACTOR: Final = 1.5
SHORT_PROMPT: Final = 32
"""Prompt tokens below which the rules call an answer short."""
SHORT_LIMIT: Final = 50
SHORT_CUES: Final = ("cue_brief", "cue_choice", "cue_greeting")
LONG_CUES: Final = ("cue_essay", "cue_code", "cue_list", "cue_explain", "cue_long", "cue_steps")
SHRINK: Final = 10.0


class RunningMedian:
    """The median of what came so far."""

    def __init__(self) -> None:
        self._sorted: list[float] = []

    def value(self, default: float) -> float:
        """The median; `default` before the first output."""
        return self._sorted[len(self._sorted) // 2] if self._sorted else default

    def add(self, output: float) -> None:
        """One more output."""
        bisect.insort(self._sorted, output)


def running_median(
    names: Sequence[Any],
    output: Floats,
    order: Iterable[int],
    known: Iterable[int] = (),
    start: float = UNKNOWN,
) -> Floats:
    """The running median of each row's name, over `known` rows and then `order`; `start` before its first."""
    medians: dict[Any, RunningMedian] = defaultdict(RunningMedian)
    for row in known:
        medians[names[row]].add(output[row])
    said = np.full(len(output), np.nan)
    for row in order:
        median = medians[names[row]]
        said[row] = median.value(start)
        median.add(output[row])
    return said


def by_input(requests: Requests) -> Floats:
    """1.5 times the prompt's tokens."""
    said: Floats = INPUT_FACTOR * requests.tokens
    return said


def histogram(requests: Requests, output: Floats, order: Iterable[int], known: Iterable[int] = ()) -> Floats:
    """The running mean output of prompts of the same power of two of tokens, as AIBrix keeps it."""
    bucket = np.log2(np.maximum(requests.tokens, 1)).astype(np.int64)
    total: dict[int, float] = defaultdict(float)
    count: dict[int, int] = defaultdict(int)
    for row in known:
        total[bucket[row]] += output[row]
        count[bucket[row]] += 1
    said = np.full(len(output), np.nan)
    for row in order:
        at = bucket[row]
        said[row] = total[at] / count[at] if count[at] else UNKNOWN
        total[at] += output[row]
        count[at] += 1
    return said


def rules(
    core: Core,
    requests: Requests,
    limit: Floats,
    output: Floats,
    *,
    order: Iterable[int],
    known: Iterable[int] = (),
) -> Floats:
    """Three rules like llm-d's call an answer short or long (a low limit; a cue; a short prompt), and the
    running median of each of the two is its length."""
    columns = {name: requests.vectors[:, core.names.index(name)] for name in (*SHORT_CUES, *LONG_CUES)}
    asks_short = np.any([columns[name] > 0 for name in SHORT_CUES], axis=0)
    asks_long = np.any([columns[name] > 0 for name in LONG_CUES], axis=0)
    low_limit = (limit >= 0) & (limit < SHORT_LIMIT)
    short = low_limit | (asks_short & ~asks_long) | ((requests.tokens < SHORT_PROMPT) & ~asks_long)
    return running_median(np.where(short, "short", "long").tolist(), output, order, known)


def _hand_features(text: str) -> list[float]:
    words = text.split()
    return [
        len(text),
        len(words),
        text.count("?"),
        text.count("\n"),
        sum(character.isdigit() for character in text),
        text.count(","),
        text.count("."),
        float(np.mean([len(word) for word in words])) if words else 0.0,
    ]


def _prompt_means(target: Floats, prompt: Rows, count: int) -> tuple[Rows, Floats, Floats]:
    rows = np.bincount(prompt, minlength=count)
    sums = np.bincount(prompt, weights=target, minlength=count)
    seen = np.flatnonzero(rows)
    return seen, sums[seen] / rows[seen], np.sqrt(rows[seen].astype(np.float64))


def offline(
    texts: list[str],
    prompt: Rows,
    names: np.ndarray[Any, np.dtype[np.str_]],
    output: Floats,
    *,
    train: Rows,
    test: Rows,
    known: Rows,
) -> Floats:
    """TF-IDF and gradient boosting: no router could run it on the path of a request, so it marks what texts
    tell.

    Fitted to the rows `train`, asked for the rows `test`, which share no prompt with them. The mean of each
    row's model is known to it, from the rows `known`."""
    known_texts = sorted(set(prompt[train].tolist()))
    vectorizer = TfidfVectorizer(ngram_range=(1, 2), min_df=2, sublinear_tf=True)
    vectorizer.fit([texts[k] for k in known_texts])
    matrix = vectorizer.transform(texts)
    value = np.log1p(output)
    overall = float(value[known].mean())
    means: dict[str, float] = {}
    for name in np.unique(names[known]):
        own = value[known][names[known] == name]
        means[str(name)] = float((own.sum() + SHRINK * overall) / (len(own) + SHRINK))
    mean_of = np.array([means.get(str(name), overall) for name in names])
    residual = value - mean_of
    inner = np.zeros(len(train))
    for fitted, held in GroupKFold(5, shuffle=True, random_state=1).split(train, groups=prompt[train]):
        seen, target, weight = _prompt_means(residual[train[fitted]], prompt[train[fitted]], len(texts))
        ridge = Ridge(alpha=1.0).fit(matrix[seen], target, sample_weight=weight)
        inner[held] = ridge.predict(matrix)[prompt[train[held]]]
    seen, target, weight = _prompt_means(residual[train], prompt[train], len(texts))
    outer = Ridge(alpha=1.0).fit(matrix[seen], target, sample_weight=weight).predict(matrix)
    hand = np.array([_hand_features(text) for text in texts])
    trees = HistGradientBoostingRegressor(
        loss="absolute_error",
        max_iter=150,
        max_leaf_nodes=16,
        min_samples_leaf=60,
        early_stopping=False,
        random_state=1,
    )
    trees.fit(np.column_stack((inner, mean_of[train], hand[prompt[train]])), output[train])
    said: Floats = trees.predict(np.column_stack((outer[prompt[test]], mean_of[test], hand[prompt[test]])))
    return said
