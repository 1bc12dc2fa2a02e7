"""SGLang's metrics (`--enable-metrics`).

Its token counters move only when a request ends; the gauges and the inter-token histogram move while it
works. With several schedulers (data parallelism) each has a label set of its own: requests and tokens add
up, use is averaged. The ranks of one tensor-parallel engine do not report each, only the first.
https://docs.sglang.io/references/production_metrics.html
"""

from __future__ import annotations

from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import EngineReading
from sidecar.telemetry.totals import first, seconds, share

NAME = "sglang"
PREFIX = b"sglang:"
GAPS = ("sglang:inter_token_latency_seconds", "sglang:time_per_output_token_seconds")


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is not SGLang's."""
    running = page.total("sglang:num_running_reqs")
    if running is None:
        return None
    capacity = page.total("sglang:max_total_num_tokens")
    output = page.total("sglang:generation_tokens_total")
    prompt = page.total("sglang:prompt_tokens_total")
    used = page.total("sglang:num_used_tokens")
    gaps = seconds(page, *GAPS)
    return EngineReading(
        at=at,
        source=NAME,
        running=running,
        waiting=page.total("sglang:num_queue_reqs"),
        kv_use=share(page.mean("sglang:token_usage")),
        capacity=int(capacity) if capacity else None,
        reserved_tokens=used,
        held_tokens=page.total("sglang:decode_sum_seq_lens"),
        movement=(
            output,
            prompt,
            used,
            page.total("sglang:gen_throughput"),
            page.total("sglang:realtime_tokens_total"),
            None if gaps is None else gaps.count,
        ),
        output_tokens=output,
        prompt_tokens=prompt,
        prefix_queries=prompt,
        prefix_hits=page.total("sglang:cached_tokens_total"),
        preemptions=first(page, "sglang:num_retracted_requests_total", "sglang:num_retracted_reqs"),
        finished=page.total("sglang:num_requests_total"),
        ttft=seconds(page, "sglang:time_to_first_token_seconds"),
        queue_time=seconds(page, "sglang:queue_time_seconds"),
        prefill_time=seconds(page, "sglang:per_stage_req_latency_seconds", having=b'stage="prefill_forward"'),
        inter_token=gaps,
    )
