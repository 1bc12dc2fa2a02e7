"""vLLM's metrics: the names since 0.10 and those before.

With data parallelism each engine core has its own label set: requests and capacity add up, use is averaged.
vLLM does not tell the tokens that its running sequences hold; `indicators.py` derives them from its counters.
https://docs.vllm.ai/en/stable/usage/metrics/
"""

from __future__ import annotations

from functools import lru_cache

from sidecar.telemetry.exposition import Page, label
from sidecar.telemetry.readings import EngineReading
from sidecar.telemetry.totals import first, plain, seconds, share

NAME = "vllm"
PREFIX = b"vllm:"
GAPS = ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds")


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is not vLLM's."""
    running = page.total("vllm:num_requests_running")
    if running is None:
        return None
    use = page.mean("vllm:kv_cache_usage_perc")
    if use is None:
        use = page.mean("vllm:gpu_cache_usage_perc")
    use = share(use)
    capacity = _capacity(page)
    output = page.total("vllm:generation_tokens_total")
    prompt = page.total("vllm:prompt_tokens_total")
    prompts = plain(page, "vllm:request_prompt_tokens")
    outputs = plain(page, "vllm:request_generation_tokens")
    finished, aborted = _ended(page)
    return EngineReading(
        at=at,
        source=NAME,
        running=running,
        waiting=page.total("vllm:num_requests_waiting"),
        kv_use=use,
        capacity=capacity,
        reserved_tokens=use * capacity if use is not None and capacity else None,
        movement=(output, prompt),
        output_tokens=output,
        prompt_tokens=prompt,
        prefix_queries=first(page, "vllm:prefix_cache_queries_total", "vllm:gpu_prefix_cache_queries_total"),
        prefix_hits=first(page, "vllm:prefix_cache_hits_total", "vllm:gpu_prefix_cache_hits_total"),
        preemptions=page.total("vllm:num_preemptions_total"),
        finished=finished,
        aborted=aborted,
        ttft=seconds(page, "vllm:time_to_first_token_seconds"),
        queue_time=seconds(page, "vllm:request_queue_time_seconds"),
        prefill_time=seconds(page, "vllm:request_prefill_time_seconds"),
        decode_time=seconds(page, "vllm:request_decode_time_seconds"),
        inter_token=seconds(page, *GAPS),
        prompt_lengths=prompts,
        output_lengths=outputs,
        steps=plain(page, "vllm:iteration_tokens_total"),
    )


def _ended(page: Page) -> tuple[float | None, float | None]:
    """Requests that ended well and those whose client left, by the reason in the label."""
    samples = page.samples("vllm:request_success_total")
    if not samples:
        return None, None
    aborted = sum(value for labels, value in samples if b'finished_reason="abort"' in labels)
    return sum(value for _, value in samples) - aborted, aborted


def _capacity(page: Page) -> int | None:
    """Blocks times block size, summed over the engine cores; both are labels of an information metric."""
    tokens = 0
    for labels, _ in page.samples("vllm:cache_config_info"):
        tokens += _tokens(labels)
    return tokens or None


@lru_cache(4096)
def _tokens(labels: bytes) -> int:
    """Of one engine core; the labels are the same on every page."""
    blocks, size = label(labels, "num_gpu_blocks"), label(labels, "block_size")
    if blocks and size and blocks.isdigit() and size.isdigit():
        return int(blocks) * int(size)
    return 0
