"""A recorded run of a real engine: what was asked of it, when, and what came of it."""

from __future__ import annotations

import csv
import json
from dataclasses import dataclass
from pathlib import Path

from bench.report import data_folder

FOLDER = Path("engines/vllm_rtx4090")
SOURCE = "casys-kaist/LLMServingSim (MIT), bench/examples: vLLM 0.19, Llama-3.1-8B, one RTX 4090"


@dataclass(frozen=True)
class Served:
    """One request of the run. Times in seconds since the first was queued."""

    prompt: int
    output: int
    queued: float
    first_token: float
    last_token: float


@dataclass(frozen=True)
class Second:
    """The engine's state at the end of one second."""

    time: float
    running: float
    waiting: float
    kv: float
    """Share of the KV memory in use, 0 to 1."""


@dataclass(frozen=True)
class Recording:
    """A whole run."""

    requests: list[Served]
    curve: list[Second]
    capacity: int
    """KV tokens."""
    max_num_seqs: int
    max_num_batched_tokens: int


class MissingDataError(FileNotFoundError):
    """The recorded run is not at hand. The message says where it can be had."""


def load(data: Path | None = None) -> Recording:
    """Read the run from a folder of recorded data. Raises MissingDataError."""
    folder = (data or data_folder()) / FOLDER
    if not (folder / "requests.jsonl").exists():
        raise MissingDataError(
            f"no recorded run in {folder}: set TOKENWEIR_DATA to a folder that holds {FOLDER}; "
            f"source: {SOURCE}"
        )
    rows = [json.loads(line) for line in (folder / "requests.jsonl").read_text().splitlines()]
    begin = min(row["queued_ts"] for row in rows)
    requests = [
        Served(
            row["input_toks"],
            row["output_toks"],
            row["queued_ts"] - begin,
            row["first_token_ts"] - begin,
            row["last_token_ts"] - begin,
        )
        for row in rows
    ]
    with (folder / "timeseries.csv").open() as lines:
        curve = [
            Second(
                float(row["t"]),
                float(row["running"]),
                float(row["waiting"]),
                float(row["kv_cache_pct"]) / 100,
            )
            for row in csv.DictReader(lines)
        ]
    meta = json.loads((folder / "meta.json").read_text())
    arguments = meta["engine_kwargs"]
    return Recording(
        sorted(requests, key=lambda request: request.queued),
        curve,
        meta["kv_cache"]["num_kv_tokens"],
        arguments["max_num_seqs"],
        arguments["max_num_batched_tokens"],
    )
