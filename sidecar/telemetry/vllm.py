"""vLLM's metrics: the names since 0.10 (`kv_cache_usage_perc`) and those before (`gpu_cache_usage_perc`).

With data parallelism each engine core has its own label set: requests and capacity add up, use is averaged.
https://docs.vllm.ai/en/stable/usage/metrics/
"""

from __future__ import annotations

from sidecar.telemetry.exposition import Page, label
from sidecar.telemetry.readings import EngineReading

NAME = "vllm"
PREFIX = b"vllm:"


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is not vLLM's."""
    running = page.total("vllm:num_requests_running")
    if running is None:
        return None
    use = page.mean("vllm:kv_cache_usage_perc")
    if use is None:
        use = page.mean("vllm:gpu_cache_usage_perc")
    output = page.total("vllm:generation_tokens_total")
    prompt = page.total("vllm:prompt_tokens_total")
    return EngineReading(
        at=at,
        source=NAME,
        running=running,
        waiting=page.total("vllm:num_requests_waiting"),
        kv_use=None if use is None else min(max(use, 0.0), 1.0),
        capacity=_capacity(page),
        movement=(output, prompt),
        output_tokens=output,
        prompt_tokens=prompt,
        preemptions=page.total("vllm:num_preemptions_total"),
    )


def _capacity(page: Page) -> int | None:
    """Blocks times block size, summed over the engine cores; both are labels of an information metric."""
    tokens = 0
    for labels, _ in page.samples("vllm:cache_config_info"):
        blocks, size = label(labels, "num_gpu_blocks"), label(labels, "block_size")
        if blocks and size and blocks.isdigit() and size.isdigit():
            tokens += int(blocks) * int(size)
    return tokens or None
