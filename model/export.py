"""A fitted model as the document that gateways take: flat arrays, a checksum, and vectors that they must
reproduce."""

from __future__ import annotations

import base64
import json
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from sklearn.ensemble import HistGradientBoostingRegressor

from model.core import Core
from model.dataset import Dataset
from model.training import LEAST_WIDTH, Fitted
from tokenweir.contract import names

FORMAT: Final = 1
LEAF: Final = 255
VECTORS: Final = 32


class Flat:
    """Trees in a row, a node's left child behind it, as `core/prediction/trees.lua` walks them."""

    def __init__(self) -> None:
        self.root: list[int] = []
        self.feature: list[int] = []
        self.right: list[int] = []
        self.value: list[float] = []

    def add(self, ensemble: HistGradientBoostingRegressor) -> dict[str, float | int]:
        """Append an ensemble's trees; return what the payload says of it."""
        for (tree,) in ensemble._predictors:
            self.root.append(len(self.feature))
            self._append(tree.nodes)
        return {"start": float(ensemble._baseline_prediction.item()), "trees": len(ensemble._predictors)}

    def _append(self, nodes: npt.NDArray[Any]) -> None:
        # Depth first, without recursion: (node, the place whose right child it is).
        stack: list[tuple[int, int]] = [(0, -1)]
        while stack:
            number, parent = stack.pop()
            node, place = nodes[number], len(self.feature)
            if parent >= 0:
                self.right[parent] = place
            leaf = bool(node["is_leaf"])
            self.feature.append(LEAF if leaf else int(node["feature_idx"]))
            self.right.append(0)
            self.value.append(float(node["value"] if leaf else node["num_threshold"]))
            if not leaf:
                stack.append((int(node["right"]), place))
                stack.append((int(node["left"]), -1))


def _pack(values: Any, kind: str) -> str:
    return base64.b64encode(np.asarray(values, kind).tobytes()).decode()


def predict(fitted: Fitted, data: Dataset) -> npt.NDArray[np.float64]:
    """What scikit-learn says of rows: the median and the distances to the outer quantiles, (n, 3), against
    the base."""
    x = data.vectors.astype(np.float64)
    # The gateway's vector is in single precision.
    x[:, -1] = fitted.linear.score(data.words).astype(np.float32)
    median, lower, upper = (model.predict(x) for model in (fitted.median, fitted.lower, fitted.upper))
    return np.column_stack(
        (median, np.maximum(LEAST_WIDTH, median - lower), np.maximum(LEAST_WIDTH, upper - median))
    )


def payload(fitted: Fitted, core: Core, data: Dataset, version: str, about: dict[str, Any]) -> dict[str, Any]:
    """The payload. Its test vectors are rows of `data`; `about` tells people what it was trained on."""
    linear = fitted.linear
    known = np.flatnonzero(linear.squares)
    flat = Flat()
    ensembles = {name: flat.add(getattr(fitted, name)) for name in ("median", "lower", "upper")}
    rows = np.unique(np.linspace(0, len(data) - 1, VECTORS).astype(np.int64))
    sample = data.take(rows)
    said = predict(fitted, sample)
    means = _means(fitted, sample, said)
    start = sample.words.start
    vectors = []
    for k in range(len(rows)):
        count = int(sample.words.count[k])
        vector: dict[str, Any] = {
            "x": _pack(sample.vectors[k], "<f4"),
            "words": _pack(sample.words.index[start[k] : start[k] + count], "<u2"),
            "count": count,
            "median": float(said[k, 0]),
            "lower": float(said[k, 1]),
            "upper": float(said[k, 2]),
            "mean": float(means[k]),
        }
        if sample.limit[k] >= 0:
            vector["limit"] = float(sample.limit[k])
        vectors.append(vector)
    return {
        "format": FORMAT,
        "version": version,
        "features": core.version,
        "names": core.names,
        "words": {
            "bias": linear.bias,
            "count": len(known),
            "index": _pack(known, "<u2"),
            "weights": _pack(linear.weights[known], "<f4"),
            "squares": _pack(linear.squares[known], "<f4"),
        },
        "trees": {
            "count": len(flat.root),
            "nodes": len(flat.feature),
            "root": _pack(flat.root, "<u2"),
            "feature": _pack(flat.feature, "<u1"),
            "right": _pack(flat.right, "<u2"),
            "value": _pack(flat.value, "<f8"),
            **ensembles,
        },
        "shape": {
            "low": fitted.low.tolist(),
            "high": fitted.high.tolist(),
            "least_width": LEAST_WIDTH,
            "mean_factor": fitted.mean_factor,
        },
        "prior": {
            "mean": fitted.priors.mean,
            "spread": fitted.priors.spread,
            "models": fitted.priors.models,
            "families": fitted.priors.families,
        },
        "vectors": vectors,
        "about": about,
    }


def _means(fitted: Fitted, data: Dataset, said: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    log_limit = np.where(data.limit >= 0, np.log1p(np.maximum(data.limit, 0)), np.log(2.0**24))
    middle = data.base + said[:, 0]
    points = np.concatenate(
        (
            middle[:, None] - said[:, 1:2] * fitted.low[None, :],
            middle[:, None] + said[:, 2:3] * fitted.high[None, :],
        ),
        axis=1,
    )
    mean: npt.NDArray[np.float64] = np.expm1(np.clip(points, 0, log_limit[:, None])).mean(axis=1)
    return mean


def envelope(content: dict[str, Any], core: Core) -> str:
    """The document around a payload: its text with its checksum."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return json.dumps(
        {
            "schema": names.SCHEMA,
            "version": content["version"],
            "checksum": core.digest(text.encode()),
            "payload": text,
        },
        separators=(",", ":"),
        ensure_ascii=False,
    )
