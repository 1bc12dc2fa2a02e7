"""Text Generation Inference's metrics. They tell no KV use.

https://huggingface.co/docs/text-generation-inference/reference/metrics
"""

from __future__ import annotations

from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import EngineReading

NAME = "tgi"
PREFIX = b"tgi_"


def read(page: Page, at: float) -> EngineReading | None:
    """A reading, or None where the page is not TGI's."""
    running = page.total("tgi_batch_current_size")
    waiting = page.total("tgi_queue_size")
    if running is None and waiting is None:
        return None
    output = page.total("tgi_request_generated_tokens_sum")
    return EngineReading(
        at=at,
        source=NAME,
        running=running or 0,
        waiting=waiting,
        movement=(
            output,
            page.total("tgi_batch_inference_count"),
            page.total("tgi_batch_forward_duration_count"),
        ),
        output_tokens=output,
        prompt_tokens=page.total("tgi_request_input_length_sum"),
    )
