"""llama.cpp's metrics (`--metrics`).

They tell no KV capacity (that is `meta.n_ctx` of `/v1/models`), and KV use only in builds before 2025. The
token counters move when a request ends; `n_decode_total` moves with every step. The times of prompts and
outputs are whole seconds spent in both, without a count of requests.
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
"""

from __future__ import annotations

from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import EngineReading, Total
from sidecar.telemetry.totals import share

NAME = "llamacpp"
PREFIX = b"llamacpp:"


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is not llama.cpp's."""
    running = page.total("llamacpp:requests_processing")
    if running is None:
        return None
    output = page.total("llamacpp:tokens_predicted_total")
    prompt = page.total("llamacpp:prompt_tokens_total")
    decode_s = page.total("llamacpp:tokens_predicted_seconds_total")
    prefill_s = page.total("llamacpp:prompt_seconds_total")
    return EngineReading(
        at=at,
        source=NAME,
        running=running,
        waiting=page.total("llamacpp:requests_deferred"),
        kv_use=share(page.mean("llamacpp:kv_cache_usage_ratio")),
        held_tokens=page.total("llamacpp:kv_cache_tokens"),
        movement=(output, prompt, page.total("llamacpp:n_decode_total")),
        output_tokens=output,
        prompt_tokens=prompt,
        prefill_time=None if prefill_s is None else Total(prefill_s * 1000, 0),
        inter_token=Total(decode_s * 1000, output) if decode_s is not None and output is not None else None,
    )
