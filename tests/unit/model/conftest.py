"""A small model, trained once from a part of the bundled set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from model import bootstrap, export, training
from model.core import Core
from model.dataset import Dataset

SMALL = training.Options(median_trees=20, lower_trees=6, upper_trees=8, leaves=8)


@dataclass(frozen=True)
class Example:
    """A runtime, the bundled set, and what was trained from some thousand of its rows."""

    core: Core
    data: Dataset
    fitted: training.Fitted
    payload: dict[str, Any]
    model: Any


@pytest.fixture(scope="session")
def example() -> Example:
    """The model that the tests share. Nobody may change it."""
    core = Core()
    data = bootstrap.load(core)
    rows = np.random.default_rng(1).permutation(len(data))[:5000]
    part = data.take(np.sort(rows))
    fitted = training.fit(part, core, SMALL)
    payload = export.payload(fitted, core, part, "test-1", {"data": "a part of the bundled set"})
    return Example(core, data, fitted, payload, core.build(payload))
