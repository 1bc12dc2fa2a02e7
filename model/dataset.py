"""Completed requests as arrays: what the predictor knew of each before it ran, and what it came to."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from model.core import ENDINGS, Counts, Floats, Indices, Requests, Stream, Vectors, Words

STOP, LENGTH, CUT = ENDINGS["stop"], ENDINGS["length"], ENDINGS["cut"]


@dataclass(frozen=True, slots=True)
class Dataset:
    """One row per completed request, in the order of time.

    `vectors` (n, features) with their past filled; `words`; `output` tokens of one sequence; `ending` a code
    of `ENDINGS`; `limit` max_tokens (below 0: none); `model` public names; `group`: rows of one group ask
    the same, so no split may part them."""

    vectors: Vectors
    words: Words
    output: Floats
    ending: npt.NDArray[np.uint8]
    limit: Floats
    model: npt.NDArray[np.str_]
    group: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.output)

    @property
    def base(self) -> Floats:
        """The running expectation of ln(1 + output) that each prediction starts from."""
        return self.vectors[:, 0].astype(np.float64)

    def digests(self, past: int) -> npt.NDArray[np.uint32]:
        """A number for each row: equal for rows that ask the same in the same form and gave as many tokens.
        `past`: how many features of the past the vectors begin with, which do not count."""
        start = self.words.start
        found = np.empty(len(self), np.uint32)
        for k in range(len(self)):
            words = self.words.index[start[k] : start[k] + self.words.count[k]]
            text = words.tobytes() + self.vectors[k, past:-1].tobytes() + self.output[k].tobytes()
            found[k] = zlib.crc32(text)
        return found

    def take(self, rows: npt.NDArray[np.int64]) -> Dataset:
        """Some of the rows, in that order."""
        return Dataset(
            self.vectors[rows],
            self.words.take(rows),
            self.output[rows],
            self.ending[rows],
            self.limit[rows],
            self.model[rows],
            self.group[rows],
        )


def of_stream(requests: Requests, stream: Stream, past: Vectors, group: npt.NDArray[np.int64]) -> Dataset:
    """The dataset of a stream that was replayed; rows in the order of arrival."""
    order = np.argsort(stream.arrival, kind="stable")
    vectors = requests.vectors[stream.request].copy()
    vectors[:, : past.shape[1]] = past
    whole = Dataset(
        vectors,
        requests.words.take(stream.request),
        stream.output,
        stream.ending,
        stream.limit,
        np.array(stream.names)[stream.model],
        group,
    )
    return whole.take(order)


def thin(group: npt.NDArray[np.int64], most: int, seed: int) -> npt.NDArray[np.int64]:
    """Rows so that none of the groups has more than `most`, drawn by the seed, in their order. A few prompts
    that were asked a hundred times each would otherwise outweigh all others."""
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(group))
    by_group = np.argsort(group[order], kind="stable")
    sorted_groups = group[order][by_group]
    starts = np.concatenate(([True], sorted_groups[1:] != sorted_groups[:-1]))
    first = np.maximum.accumulate(np.where(starts, np.arange(len(group)), 0))
    rank = np.arange(len(group)) - first
    return np.sort(order[by_group[rank < most]])


def concatenate(parts: list[Dataset]) -> Dataset:
    """Several datasets, one after the other."""
    counts: list[Counts] = [part.words.count for part in parts]
    index: list[Indices] = [part.words.index for part in parts]
    return Dataset(
        np.concatenate([part.vectors for part in parts]),
        Words(np.concatenate(index), np.concatenate(counts)),
        np.concatenate([part.output for part in parts]),
        np.concatenate([part.ending for part in parts]),
        np.concatenate([part.limit for part in parts]),
        np.concatenate([part.model for part in parts]),
        np.concatenate([part.group for part in parts]),
    )
