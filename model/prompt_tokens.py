"""The weights by which `core/body/text_tokens.lua` estimates a text's tokens from the kinds of its bytes.

python -m model.prompt_tokens        # prints them, from the recorded prompts (TOKENWEIR_DATA)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import numpy as np
from scipy.optimize import nnls

from model import recorded
from model.core import Core, Floats

PRIOR: Final = """
  0.1  0.9  0.9  1.2  0.9  0.9  0.3  0  0.6  1.1  2
  0    0.05 0.3  0.8  0.9  0.8  0.6  0  0.6  1.1  2
  0    0.15 0.1  0.8  0.9  0.8  0.6  0  0.6  1.1  2
  0.3  0.9  0.9  0.2  0.9  0.9  0.6  0  0.6  1.1  2
  0.1  0.4  0.4  0.8  0.3  0.5  0.4  0  0.6  1.1  2
  0.1  0.4  0.4  0.8  0.4  0.3  0.4  0  0.6  1.1  2
  0.2  0.8  0.8  0.8  0.9  0.8  0.1  0  0.6  1.1  2
  0    0.3  0.6  0.8  0.9  0.9  0.6  0  0.55 1.04 2
  0    0    0    0    0    0    0    0  0    0    0
  0    0    0    0    0    0    0    0  0    0    0
  0    0    0    0    0    0    0    0  0    0    0
"""
"""What pairs weigh of which the prompts tell nothing: about one token a word, a third a digit, half a
Cyrillic letter, one a Chinese character, two an emoji."""
PRIOR_STRENGTH: Final = 0.3
"""How firmly the prior is held: its squared difference weighs as much as so many squared relative errors."""


def pairs(core: Core, text: bytes) -> Floats:
    """How often a byte of each kind follows one of each kind, as a flat array."""
    module = core.require("tokenweir.core.body.text_tokens")
    kinds, kind = int(module.KINDS), module.kind
    of_byte = np.array([int(kind(c)) for c in range(256)])
    found = of_byte[np.frombuffer(text, np.uint8)]
    before = np.concatenate(([int(kind(32))], found[:-1]))
    return np.bincount(before * kinds + found, minlength=kinds * kinds).astype(np.float64)


def fit(counted: Floats, tokens: Floats) -> Floats:
    """Weights from 0 that make the least squared relative error, drawn towards `PRIOR`."""
    prior = np.array(PRIOR.split(), np.float64)
    held = np.sqrt(PRIOR_STRENGTH) * np.eye(len(prior))
    scale = 1 / np.maximum(tokens, 1)
    found, _ = nnls(
        np.concatenate((counted * scale[:, None], held)),
        np.concatenate((tokens * scale, held @ prior)),
    )
    return np.asarray(found, np.float64)


def main() -> None:
    """Fit and print."""
    root = Path(__file__).resolve().parents[1]
    data = recorded.load(Path(os.environ.get("TOKENWEIR_DATA") or root.parent / "shared" / "data"))
    core = Core()
    told = data.text_tokens.astype(np.float64)
    counted = np.array([pairs(core, text.encode()) for text in data.texts])
    found = fit(counted, told)
    kinds = round(len(found) ** 0.5)
    for row in found.reshape(kinds, kinds):
        print("  { " + ", ".join(f"{value * 1000:.0f}" for value in row) + " },")
    error = np.abs(counted @ found / told - 1)
    print(f"relative error: median {np.median(error):.3f}, 90 % {np.quantile(error, 0.9):.3f}")


if __name__ == "__main__":
    main()
