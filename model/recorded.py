"""Recorded output lengths: which prompt, answered by which model, gave how many tokens.

Sources (see `SOURCES`): Open-Assistant's model evaluations, GSM8K's model solutions, GPTeacher's instruct and
role-play sets. The prompts and lengths are read from a folder of data; none of their text goes anywhere else.
"""

from __future__ import annotations

import csv
import gzip
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

SOURCES: Final = {
    "oasst_model_eval": "Open-Assistant/oasst-model-eval (Apache-2.0): outputs of 133 model reports",
    "gsm8k": "openai/grade-school-math (MIT): solutions of four models",
    "gpteacher_codegen": "teknium1/GPTeacher (MIT): code, GPT-4",
    "gpteacher_roleplay": "teknium1/GPTeacher (MIT): role-play, GPT-4",
}


class MissingDataError(FileNotFoundError):
    """The folder of recorded lengths is not there."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """One entry per output. `prompt` is an index into `texts`; `model` the public name that a gateway would
    know; `variant` the report and its sampling settings: one application that uses the model."""

    texts: list[str]
    text_source: list[str]
    text_tokens: npt.NDArray[np.int64]
    source: npt.NDArray[np.str_]
    prompt: npt.NDArray[np.int64]
    model: npt.NDArray[np.str_]
    variant: npt.NDArray[np.str_]
    config: npt.NDArray[np.str_]
    output: npt.NDArray[np.float64]
    characters: npt.NDArray[np.float64]

    def take(self, rows: npt.NDArray[np.int64]) -> Recorded:
        """Some of the outputs, in that order."""
        return Recorded(
            self.texts,
            self.text_source,
            self.text_tokens,
            self.source[rows],
            self.prompt[rows],
            self.model[rows],
            self.variant[rows],
            self.config[rows],
            self.output[rows],
            self.characters[rows],
        )


def public_name(report: str) -> str:
    """The model behind an evaluation report: its name without date, prompt format and sampling."""
    name = re.sub(r"^\d{4}-\d\d-\d\d_", "", report)
    name = re.sub(r"^(lottery_100_no_prefix_report_|report_file_?-?|report_)", "", name)
    name = re.sub(r"_(sampling|sample|full_lottery|lottery|multilingual|no_?prefix|default).*$", "", name)
    return re.sub(r"^result_.*", "result", name)


def load(folder: Path) -> Recorded:
    """Read all sources. Raises MissingDataError."""
    path = folder / "lengths"
    if not path.is_dir():
        raise MissingDataError(
            f"{path} is not there: set TOKENWEIR_DATA to a folder with lengths/prompts.jsonl.gz and "
            f"lengths/<source>.csv.gz of {', '.join(SOURCES)}"
        )
    texts: list[str] = []
    sources: list[str] = []
    tokens: list[int] = []
    number: dict[tuple[str, str], int] = {}
    with gzip.open(path / "prompts.jsonl.gz", "rt") as lines:
        for line in lines:
            entry = json.loads(line)
            number[entry["source"], entry["prompt_id"]] = len(texts)
            texts.append(entry["prompt"])
            sources.append(entry["source"])
            tokens.append(int(entry["prompt_tokens"]))
    rows: list[tuple[str, int, str, str, str, float, float]] = []
    for source in SOURCES:
        with gzip.open(path / f"{source}.csv.gz", "rt") as file:
            for row in csv.DictReader(file):
                prompt = number[source, row["prompt_id"]]
                model, config = row["model"], row["config"]
                variant = f"{source}/{model}/{config}"
                lengths = float(row["output_tokens"]), float(row["output_chars"])
                rows.append((source, prompt, public_name(model), variant, config, *lengths))
    columns = list(zip(*rows, strict=True))
    return Recorded(
        texts,
        sources,
        np.array(tokens),
        np.array(columns[0]),
        np.array(columns[1]),
        np.array(columns[2]),
        np.array(columns[3]),
        np.array(columns[4]),
        np.array(columns[5], dtype=np.float64),
        np.array(columns[6], dtype=np.float64),
    )
