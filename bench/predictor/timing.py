"""How long features and prediction take in LuaJIT."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np

from bench.predictor.folds import Plan
from model.core import Core
from model.recorded import Recorded

SCRIPT: Final = Path(__file__).with_name("timing.lua")
SYSTEM: Final = "You are a helpful assistant. Answer in the language of the question."
SIZES: Final = {"200 B": 200, "2 KB": 2048, "220 KB": 220 * 1024}
BODIES: Final = 40
SERIES: Final = 7


def bodies(recorded: Recorded, size: int, seed: int) -> list[bytes]:
    """Chat bodies of prose and code, whose last message of the user has `size` bytes of recorded prompts."""
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(BODIES):
        text = ""
        while len(text) < size:
            text += recorded.texts[int(rng.integers(len(recorded.texts)))] + "\n"
        members = {
            "model": "llm",
            "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": text[:size]}],
            "temperature": 0.7,
            "max_tokens": 1024,
            "stream": True,
        }
        made.append(json.dumps(members, ensure_ascii=False).encode())
    return made


def measure(payload: dict[str, Any], recorded: Recorded, plan: Plan) -> dict[str, dict[str, float]]:
    """Microseconds by size of the prompt: of features and prediction, and of the parsing before, which
    routing needs anyway. In a runtime of its own, as a worker's is: one that has trained and replayed for
    minutes has no room left for compiled code. The calmest of some series: what else runs on a machine only
    ever adds."""
    core = Core()
    script, model = core.script(SCRIPT.read_bytes()), core.build(payload)
    rounds = 100 if plan.full else 60
    found = {}
    for name, size in SIZES.items():
        chats = bodies(recorded, size, seed=1)
        often = rounds if size < 10_000 else rounds // 3
        series = [_series(script, model, chats, often) for _ in range(SERIES)]
        found[name] = min(series, key=lambda one: one["eval_us_p99"])
    found["clock"] = {"us": float(script.clock_cost())}
    return found


def _series(script: Any, model: Any, chats: list[bytes], rounds: int) -> dict[str, float]:
    script.begin()
    for _ in range(rounds):
        for body in chats:
            script.one(model, body)
    parsing, evaluating = (np.array(list(part.values())) for part in script.finish())
    return {
        "requests": len(evaluating),
        "eval_us_p50": float(np.quantile(evaluating, 0.5)),
        "eval_us_p99": float(np.quantile(evaluating, 0.99)),
        "parse_us_p50": float(np.quantile(parsing, 0.5)),
        "parse_us_p99": float(np.quantile(parsing, 0.99)),
    }
