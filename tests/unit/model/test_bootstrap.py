"""`model/bootstrap.py`: the bundled set."""

from __future__ import annotations

import numpy as np

from model import bootstrap
from model.dataset import LENGTH
from tests.unit.model.conftest import Example

MOST_BYTES = 600 * 1024


def test_the_bundled_files_are_small() -> None:
    for path in (bootstrap.REQUESTS, bootstrap.TIMES, bootstrap.WORDS):
        assert path.stat().st_size < MOST_BYTES


def test_the_bundled_files_hold_numbers_only() -> None:
    for path in (bootstrap.REQUESTS, bootstrap.TIMES, bootstrap.WORDS):
        with np.load(path, allow_pickle=False) as found:
            assert all(found[name].dtype.kind in "uif" for name in found.files)


def test_its_rows_are_whole(example: Example) -> None:
    data = example.data
    assert len(data) > 30_000
    assert np.isfinite(data.vectors).all()
    assert (data.output >= 0).all()
    assert data.words.index.max() < example.core.space
    assert (data.output[data.ending == LENGTH] == data.limit[data.ending == LENGTH]).all()


def test_every_feature_is_exercised(example: Example) -> None:
    silent = {
        name
        for name, column in zip(example.core.names, example.data.vectors.T, strict=True)
        if (column == column[0]).all()
    }
    # Those of requests that the recorded sources have none of, and the one that training fills.
    assert silent <= {
        "media", "tool_choice", "format", "min_tokens", "ignore_eos", "effort", "thinking", "thinking_budget",
        "logprobs", "tool_messages", "tool_bytes", "choices", "word_score",
    }  # fmt: skip
