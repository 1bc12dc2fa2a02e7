"""How well the tokens of a prompt are estimated, before an engine tells and after a hundred requests."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from model import chats
from model.core import Core
from model.recorded import Recorded

LEARNED_FROM: Final = 100
TEMPLATE: Final = 24
"""Tokens of a chat template in the tokenizers that are made up."""
FACTORS: Final = {"cl100k": 1.0, "a coarser tokenizer": 1.35, "a finer tokenizer": 0.75}


def measure(core: Core, recorded: Recorded, seed: int) -> dict[str, dict[str, float]]:
    """Median and 90 % quantile of the relative error, by tokenizer. The counts are those of cl100k; other
    tokenizers are that times a factor, with a chat template of their own."""
    plain = chats.Application("", None, {}, [], None, "chat", 1.0)
    bodies = [chats.body("m", plain, [], text) for text in recorded.texts]
    estimated = core.read(["chat"] * len(bodies), bodies).tokens
    module = core.require("tokenweir.core.prediction.prompt_tokens")
    order = np.random.default_rng(seed).permutation(len(bodies))
    found: dict[str, dict[str, float]] = {}
    for name, factor in FACTORS.items():
        told = factor * recorded.text_tokens + (TEMPLATE if factor != 1.0 else 0)
        raw = estimated if factor == 1.0 else np.array([module.raw(tokens, 1) for tokens in estimated])
        of: Any = module.new()
        for row in order[:LEARNED_FROM]:
            module.learn(of, float(raw[row]), float(told[row]), 0)
        rest = order[LEARNED_FROM:]
        after = np.array([module.estimate(of, float(raw[row]), 0) for row in rest])
        before, known = np.abs(raw[rest] / told[rest] - 1), np.abs(after / told[rest] - 1)
        found[name] = {
            "error_before": float(np.median(before)),
            "error": float(np.median(known)),
            "error_p90": float(np.quantile(known, 0.9)),
        }
    return found
