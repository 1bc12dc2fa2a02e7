"""TensorRT-LLM's metrics, of `trtllm-serve` (`/prometheus/metrics`, with `return_perf_metrics` and
`enable_iter_perf_stats`) and of Triton's backend (port 8002).

Both tell blocks: their number, those handed out, and the tokens of each.
https://nvidia.github.io/TensorRT-LLM/examples/prometheus_metrics.html
https://github.com/triton-inference-server/tensorrtllm_backend#triton-metrics
"""

from __future__ import annotations

from sidecar.telemetry.exposition import Page, label
from sidecar.telemetry.readings import EngineReading
from sidecar.telemetry.totals import plain, seconds, share

NAME = "trtllm"
PREFIX = b"trtllm_"
TRITON_PREFIX = b"nv_trt_llm_"


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is neither's."""
    return _serve(page, at) or _triton(page, at)


def _serve(page: Page, at: float) -> EngineReading | None:
    running = page.total("trtllm_num_requests_running")
    finished = page.total("trtllm_request_success_total")
    if running is None and finished is None:
        return None
    blocks, used = page.total("trtllm_kv_cache_max_blocks"), page.total("trtllm_kv_cache_used_blocks")
    size = page.mean("trtllm_kv_cache_tokens_per_block")
    output = page.total("trtllm_generation_tokens_total")
    prompt = page.total("trtllm_prompt_tokens_total")
    times = seconds(page, "trtllm_time_per_output_token_seconds")
    use = page.mean("trtllm_kv_cache_utilization")
    return EngineReading(
        at=at,
        source=NAME,
        running=running,
        waiting=page.total("trtllm_num_requests_waiting"),
        paused=page.total("trtllm_num_paused_requests"),
        kv_use=share(use if use is not None else _ratio(used, blocks)),
        capacity=int(blocks * size) if blocks and size else None,
        reserved_tokens=used * size if used is not None and size else None,
        movement=(
            output,
            finished,
            page.total("trtllm_num_requests_completed_total"),
            page.total("trtllm_iteration_latency_seconds"),
            page.total("trtllm_kv_cache_gen_alloc_blocks_total"),
            used,
        ),
        output_tokens=output,
        prompt_tokens=prompt,
        prefix_queries=prompt,
        prefix_hits=page.total("trtllm_prompt_cached_tokens_total"),
        finished=finished,
        ttft=seconds(page, "trtllm_time_to_first_token_seconds"),
        queue_time=seconds(page, "trtllm_request_queue_time_seconds"),
        prefill_time=seconds(page, "trtllm_request_prefill_time_seconds"),
        decode_time=seconds(page, "trtllm_request_decode_time_seconds"),
        inter_token=times,
    )


def _triton(page: Page, at: float) -> EngineReading | None:
    requests = _by(page, "nv_trt_llm_request_metrics", "request_type")
    if not requests:
        return None
    blocks = _by(page, "nv_trt_llm_kv_cache_block_metrics", "kv_cache_block_type")
    batch = _by(page, "nv_trt_llm_inflight_batcher_metrics", "inflight_batcher_specific_metric")
    general = _by(page, "nv_trt_llm_general_metrics", "general_type")
    most, used, size = blocks.get("max"), blocks.get("used"), blocks.get("tokens_per")
    active, scheduled = requests.get("active"), requests.get("scheduled")
    waiting = requests.get("waiting")
    if waiting is None and active is not None and scheduled is not None:
        # Before 24.11 there is no such figure: what is active and not scheduled waits.
        waiting = max(active - scheduled, 0.0)
    outputs, prompts = plain(page, "nv_llm_output_token_len"), plain(page, "nv_llm_input_token_len")
    return EngineReading(
        at=at,
        source="triton",
        running=scheduled if scheduled is not None else active,
        waiting=waiting,
        paused=batch.get("paused_requests"),
        kv_use=share(blocks.get("fraction", _ratio(used, most))),
        capacity=int(most * size) if most and size else None,
        reserved_tokens=used * size if used is not None and size else None,
        movement=(general.get("iteration_counter"), None if outputs is None else outputs.sum),
        output_tokens=None if outputs is None else outputs.sum,
        prompt_tokens=None if prompts is None else prompts.sum,
        finished=page.total("nv_inference_request_success"),
        prompt_lengths=prompts,
        output_lengths=outputs,
    )


def _by(page: Page, name: str, key: str) -> dict[str, float]:
    """The samples of a metric by one of its labels; several models of one Triton add up, except block
    sizes and shares, which are alike or averaged."""
    found: dict[str, list[float]] = {}
    for labels, value in page.samples(name):
        kind = label(labels, key)
        if kind:
            found.setdefault(kind, []).append(value)
    return {
        kind: sum(values) / len(values) if kind in {"tokens_per", "fraction"} else sum(values)
        for kind, values in found.items()
    }


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None
