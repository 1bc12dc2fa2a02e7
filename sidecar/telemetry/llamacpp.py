"""llama.cpp's metrics (`--metrics`).

They tell no KV capacity (that is `meta.n_ctx` of `/v1/models`), and KV use only in builds before 2025. The
token counters move when a request ends; `n_decode_total` moves with every step.
https://github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md
"""

from __future__ import annotations

from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import EngineReading

NAME = "llamacpp"
PREFIX = b"llamacpp:"


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is not llama.cpp's."""
    running = page.total("llamacpp:requests_processing")
    if running is None:
        return None
    use = page.mean("llamacpp:kv_cache_usage_ratio")
    output = page.total("llamacpp:tokens_predicted_total")
    prompt = page.total("llamacpp:prompt_tokens_total")
    return EngineReading(
        at=at,
        source=NAME,
        running=running,
        waiting=page.total("llamacpp:requests_deferred"),
        kv_use=None if use is None else min(max(use, 0.0), 1.0),
        movement=(output, prompt, page.total("llamacpp:n_decode_total")),
        output_tokens=output,
        prompt_tokens=prompt,
    )
