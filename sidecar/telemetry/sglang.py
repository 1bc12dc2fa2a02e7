"""SGLang's metrics (`--enable-metrics`).

Its token counters move only when a request ends; the gauges and the inter-token histogram move while it
works.
https://docs.sglang.io/references/production_metrics.html
"""

from __future__ import annotations

from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import EngineReading

NAME = "sglang"
PREFIX = b"sglang:"


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is not SGLang's."""
    running = page.total("sglang:num_running_reqs")
    if running is None:
        return None
    use = page.mean("sglang:token_usage")
    capacity = page.total("sglang:max_total_num_tokens")
    output = page.total("sglang:generation_tokens_total")
    prompt = page.total("sglang:prompt_tokens_total")
    return EngineReading(
        at=at,
        source=NAME,
        running=running,
        waiting=page.total("sglang:num_queue_reqs"),
        kv_use=None if use is None else min(max(use, 0.0), 1.0),
        capacity=int(capacity) if capacity else None,
        movement=(
            output,
            prompt,
            page.total("sglang:num_used_tokens"),
            page.total("sglang:gen_throughput"),
            page.total("sglang:realtime_tokens_total"),
            page.total("sglang:inter_token_latency_seconds_count"),
        ),
        output_tokens=output,
        prompt_tokens=prompt,
        preemptions=page.total("sglang:num_retracted_reqs"),
    )
