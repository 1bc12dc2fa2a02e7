"""Fits the bundled head to recorded prompts: what their encodings tell beyond the trees.

    python -m model.small.fit        # writes model/small/head.npz (TOKENWEIR_DATA)

The target is what trees that did not see a prompt leave of its outputs, in ln(1 + tokens)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
from sklearn.linear_model import Ridge

from model import bootstrap, recorded, training
from model.core import Core, Floats
from model.dataset import STOP, Dataset, thin
from model.small.encoder import SIZE, Array, Encoder
from model.small.head import ALPHA, BUNDLED, MOST_RESIDUAL

OF_A_PROMPT: Final = 3
ENDS: Final = 1024
"""Bytes of each end of a text that a gateway sends."""


def encode(texts: list[str]) -> Array:
    """The encodings of texts, (n, 384), as a gateway sends them."""
    encoder = Encoder()
    return np.array([encoder.encode(sent(text)) for text in texts], np.float32).reshape(-1, SIZE)


def sent(text: str) -> str:
    """What a gateway sends of a text: of a long one both ends."""
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= 2 * ENDS:
        return text
    return raw[:ENDS].decode("utf-8", "ignore") + " " + raw[-ENDS:].decode("utf-8", "ignore")


def weights(encodings: Array, group: npt.NDArray[np.int64], residual: Floats) -> Floats:
    """The head's weights: `group` is each residual's row of `encodings`."""
    _, inverse, counts = np.unique(group, return_inverse=True, return_counts=True)
    model = Ridge(alpha=ALPHA).fit(
        encodings[group],
        np.clip(residual, -MOST_RESIDUAL, MOST_RESIDUAL),
        sample_weight=1 / np.sqrt(counts[inverse]),
    )
    return np.append(np.asarray(model.coef_, np.float64), float(model.intercept_))


def residuals(data: Dataset, core: Core) -> Floats:
    """ln(1 + output) of rows against the medians of trees that did not see their prompts."""
    return np.log1p(data.output) - data.base - training.held_out_medians(data, core)


def main() -> None:
    """Fit and write."""
    root = Path(__file__).resolve().parents[2]
    rows = recorded.load(Path(os.environ.get("TOKENWEIR_DATA") or root.parent / "shared" / "data"))
    core = Core()
    data = bootstrap.dataset(core, rows.take(thin(rows.prompt, OF_A_PROMPT, bootstrap.SEED)), bootstrap.SEED)
    data = data.take(np.flatnonzero(data.ending == STOP))
    found = weights(encode(rows.texts), data.group, residuals(data, core))
    np.savez_compressed(BUNDLED, allow_pickle=False, weights=found.astype(np.float32))


if __name__ == "__main__":
    main()
