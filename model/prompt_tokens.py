"""The weights by which `core/features.lua` estimates a prompt's tokens from what its text is made of.

python -m model.prompt_tokens        # prints them, from the recorded prompts (TOKENWEIR_DATA)
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Final

import numpy as np
from scipy.optimize import nnls

from model import chats, recorded
from model.core import Core, Floats

COUNTED: Final = (
    "words", "bytes", "digits", "marks", "brackets", "questions", "accents", "ideographs", "others",
)  # fmt: skip
LONGEST: Final = 4096
"""Bytes of a text that are read whole."""


def counts(core: Core, texts: list[str]) -> Floats:
    """What each text is made of, one column each of `COUNTED`; ideographs are not words here."""
    words = core.require("tokenweir.core.words").text
    plain = chats.Application("", None, {}, [], None, "chat", 1.0)
    rows = []
    for text in texts:
        core.read(["chat"], [chats.body("m", plain, [], text)])
        found: list[Any] = [getattr(words, name) for name in COUNTED]
        found[0] -= words.ideographs
        rows.append(found)
    return np.array(rows, np.float64)


def fit(counted: Floats, tokens: Floats) -> Floats:
    """Weights from 0 that make the least squared relative error."""
    weight = 1 / np.maximum(tokens, 1)
    found, _ = nnls(counted * weight[:, None], tokens * weight)
    return np.asarray(found, np.float64)


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    data = recorded.load(Path(os.environ.get("TOKENWEIR_DATA") or root.parent / "shared" / "data"))
    short = [k for k, text in enumerate(data.texts) if len(text.encode()) <= LONGEST]
    told = data.text_tokens[short].astype(np.float64)
    counted = counts(Core(), [data.texts[k] for k in short])
    weights = fit(counted, told)
    for name, value in zip(COUNTED, weights, strict=True):
        print(f"{name:12} {value:.3f}")
    error = np.abs(counted @ weights / told - 1)
    print(f"relative error: median {np.median(error):.3f}, 90 % {np.quantile(error, 0.9):.3f}")
