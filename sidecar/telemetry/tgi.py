"""Text Generation Inference's metrics. They tell no KV use; `tgi_batch_current_max_tokens` is what the
running requests may grow to, so what is handed out to them.

https://huggingface.co/docs/text-generation-inference/reference/metrics
"""

from __future__ import annotations

from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import EngineReading
from sidecar.telemetry.totals import plain, seconds

NAME = "tgi"
PREFIX = b"tgi_"


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is not TGI's."""
    running = page.total("tgi_batch_current_size")
    waiting = page.total("tgi_queue_size")
    if running is None and waiting is None:
        return None
    prompts = plain(page, "tgi_request_input_length")
    outputs = plain(page, "tgi_request_generated_tokens")
    forward = page.histogram("tgi_batch_forward_duration")
    return EngineReading(
        at=at,
        source=NAME,
        running=running or 0,
        waiting=waiting,
        reserved_tokens=page.total("tgi_batch_current_max_tokens"),
        movement=(
            None if outputs is None else outputs.sum,
            page.total("tgi_batch_inference_count"),
            None if forward is None else forward[1],
        ),
        output_tokens=None if outputs is None else outputs.sum,
        prompt_tokens=None if prompts is None else prompts.sum,
        finished=page.total("tgi_request_success"),
        queue_time=seconds(page, "tgi_request_queue_duration"),
        inter_token=seconds(page, "tgi_request_mean_time_per_token_duration"),
        prompt_lengths=prompts,
        output_lengths=outputs,
        prefill_steps=seconds(page, "tgi_batch_inference_duration", having=b'method="prefill"'),
        step_time=seconds(page, "tgi_batch_inference_duration", having=b'method="decode"'),
    )
