"""Measures pairs of prediction and truth: `python -m bench.policy.pairs`, which writes `pairs.csv.gz`.

A predictor is trained from four fifths of the recorded prompts, and serves a stream of the others as a
gateway would: with keys, system prompts and sessions, correcting itself by what came out."""

from __future__ import annotations

import csv
import gzip
import sys
from dataclasses import replace

import numpy as np

from bench.policy.predictions import PAIRS
from bench.predictor import folds, history
from bench.report import data_folder
from model import bootstrap, recorded
from model.core import Core
from model.dataset import thin

SEED = 2
"""Not 1: the shape of the model was chosen on that one's folds."""
OF_A_PROMPT = 6
WARM_UP = 300
"""Requests of the stream that are not counted: the first figures of every key are still coming in."""
PLAN = replace(folds.FULL, of_a_prompt=OF_A_PROMPT)


def main() -> int:
    """Train, serve, write."""
    core = Core()
    data = recorded.load(data_folder())
    of_prompt = folds.assign(len(data.texts), SEED)
    known = bootstrap.dataset(core, data.take(thin(data.prompt, OF_A_PROMPT, SEED)), SEED + 100)
    print("training from four fifths of the prompts")
    model = folds.open_model(core, known.take(np.flatnonzero(of_prompt[known.group] != 0)), "fold-0")
    held_out = data.take(np.flatnonzero(of_prompt[data.prompt] == 0))
    fitted = folds.Folds(np.zeros_like(of_prompt), [model], np.array([], np.int64))
    played = history.play(core, held_out, fitted, PLAN, SEED)
    order = played.order[WARM_UP:]
    # Outputs that their limit cut say nothing of the length.
    order = order[played.stream.ending[order] == 0]
    said, output = played.trained, played.stream.output
    with gzip.open(PAIRS, "wt", newline="") as lines:
        writer = csv.writer(lines, lineterminator="\n")
        writer.writerow(["output", "mean", "median", "q90", "sd"])
        for i in order:
            writer.writerow(
                [int(output[i]), *(f"{v[i]:.1f}" for v in (said.mean, said.median, said.q90, said.sd))]
            )
    log_error = np.log1p(output[order]) - np.log1p(said.median[order])
    explained = 1 - log_error.var() / np.log1p(output[order]).var()
    print(f"{len(order)} pairs, R2 of the logarithms {explained:.2f}: {PAIRS}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
