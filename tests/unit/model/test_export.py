"""`model/export.py`, and that the gateway evaluates what was exported as scikit-learn does."""

from __future__ import annotations

import json

import numpy as np

from model import export
from model.dataset import Dataset
from tests.unit.model.conftest import Example
from tokenweir.contract.records import PredictorModel


def vectors(example: Example, count: int) -> Dataset:
    """Rows of the bundled set with noise on every feature, so that no cut is only met on one side."""
    rng = np.random.default_rng(2)
    data = example.data.take(rng.integers(0, len(example.data), count))
    noise = rng.normal(0, 0.2, data.vectors.shape).astype(np.float32)
    return Dataset(
        data.vectors + noise, data.words, data.output, data.ending, data.limit, data.model, data.group
    )


def test_lua_and_scikit_learn_agree_on_ten_thousand_vectors(example: Example) -> None:
    data = vectors(example, 10_000)
    lua = example.core.evaluate(example.model, data.vectors, data.words, data.limit)
    assert np.abs(lua[:, :3] - export.predict(example.fitted, data)).max() <= 1e-6
    assert np.abs(lua[:, 3] - example.fitted.linear.score(data.words)).max() <= 1e-6


def test_the_quantiles_never_cross(example: Example) -> None:
    data = vectors(example, 2_000)
    lua = example.core.evaluate(example.model, data.vectors, data.words, data.limit)
    assert (lua[:, 1:3] > 0).all()


def test_the_mean_respects_the_limit(example: Example) -> None:
    data = vectors(example, 500)
    limits = np.full(len(data), 8.0)
    assert (example.core.evaluate(example.model, data.vectors, data.words, limits)[:, 4] <= 8 + 1e-9).all()


def test_the_document_is_the_contract_s_and_a_gateway_opens_it(example: Example) -> None:
    text = export.envelope(example.payload, example.core)
    document = PredictorModel.model_validate_json(text)
    payload = json.loads(document.payload)
    model = example.core.open(document.model_dump(by_alias=True), payload)
    assert model.version == b"test-1"
    assert len(text) < 2_000_000


def test_exporting_twice_gives_the_same_document(example: Example) -> None:
    data = example.data.take(np.arange(100))
    first, second = (export.payload(example.fitted, example.core, data, "v", {}) for _ in range(2))
    assert export.envelope(first, example.core) == export.envelope(second, example.core)
