"""The engine's metrics under vLLM's names."""

from __future__ import annotations

from collections.abc import Iterable
from math import isnan

from emulator.clock import EngineClock
from emulator.engine import Engine, Event, EventKind
from emulator.histogram import Histogram, family
from emulator.settings import Settings
from tokenweir.facts import BLOCK

# Bounds as vLLM has them, seconds and tokens.
_TTFT = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
_BETWEEN = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5),
    *(10.0, 20.0, 40.0, 80.0),
)
_REQUEST = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0),
    *(120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)


class VllmMetrics:
    """Histograms fed by the engine's events, and the page of all metrics. Times are the wall's."""

    def __init__(self, engine: Engine, clock: EngineClock, settings: Settings) -> None:
        self._engine, self._clock, self._settings = engine, clock, settings
        self._labels = {"engine": "0", "model_name": settings.names[0]}
        self._success = {"stop": 0, "length": 0, "abort": 0, "error": 0}
        self._decoded, self._decoding, self._steps, self._tokens = 0, 0.0, 0, 0

        def histogram(name: str, text: str, bounds: tuple[float, ...]) -> Histogram:
            return Histogram(f"vllm:{name}", text, bounds)

        self._ttft = histogram("time_to_first_token_seconds", "Time to first token.", _TTFT)
        self._between = histogram("inter_token_latency_seconds", "Time between two tokens.", _BETWEEN)
        self._per_token = histogram(
            "request_time_per_output_token_seconds", "Time per output token of a request.", _BETWEEN
        )
        self._whole = histogram("e2e_request_latency_seconds", "Time from arrival to the end.", _REQUEST)
        self._queue = histogram("request_queue_time_seconds", "Time in the queue.", _REQUEST)
        self._inference = histogram("request_inference_time_seconds", "Time in the batch.", _REQUEST)
        self._prefill = histogram("request_prefill_time_seconds", "Time of the prompt.", _REQUEST)
        self._decode = histogram("request_decode_time_seconds", "Time from first to last token.", _REQUEST)
        self._prompt = histogram("request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self._output = histogram("request_generation_tokens", "Output tokens of a request.", _TOKENS)
        self._step = histogram("iteration_tokens_total", "Tokens of a step.", _STEP)

    def on_event(self, event: Event) -> None:
        """Count an event."""
        request, seconds = event.request, self._clock.wall_seconds
        if event.kind is EventKind.FIRST_TOKEN:
            self._ttft.observe(seconds(request.first_token - request.queued))
            self._queue.observe(seconds(request.scheduled - request.queued))
            self._prefill.observe(seconds(request.first_token - request.scheduled))
        elif event.kind is EventKind.FINISHED:
            self._success[request.tag.finish_reason] += 1
            self._prompt.observe(request.prompt)
            self._output.observe(request.output)
            self._whole.observe(seconds(request.finished - request.queued))
            self._inference.observe(seconds(request.finished - request.scheduled))
            if not isnan(request.first_token):
                span = seconds(request.finished - request.first_token)
                self._decode.observe(span)
                if request.output > 1:
                    self._per_token.observe(span / (request.output - 1))
        elif event.kind is EventKind.FAILED:
            self._success["error"] += 1

    def on_abort(self, sequences: int) -> None:
        """Count sequences whose client left."""
        self._success["abort"] += sequences

    def on_tick(self) -> None:
        """Take over what the engine did since the last tick. Steps of one tick count at their mean."""
        counters = self._engine.counters
        if decoded := counters.decoded - self._decoded:
            span = self._clock.wall_seconds(counters.decoding - self._decoding)
            self._between.observe(span / decoded, decoded)
            self._decoded, self._decoding = counters.decoded, counters.decoding
        if steps := counters.steps - self._steps:
            # As vLLM counts: a prompt whole when it is computed, what its cache had of it included.
            tokens = counters.prompt_tokens + counters.generation_tokens
            self._step.observe((tokens - self._tokens) / steps, steps)
            self._steps, self._tokens = counters.steps, tokens

    def page(self) -> str:
        """The whole page."""
        return "\n".join([*self._families(), ""])

    def _families(self) -> Iterable[str]:
        engine, counters, labels = self._engine, self._engine.counters, self._labels
        for name, text, value in (
            ("num_requests_running", "Requests in the batch.", len(engine.running)),
            ("num_requests_waiting", "Requests in the queue.", len(engine.waiting)),
            ("kv_cache_usage_perc", "Share of the KV memory in use, 1 is all.", engine.memory.usage),
        ):
            yield from family(f"vllm:{name}", "gauge", text, [(labels, float(value))])
        for name, text, value in (
            ("prompt_tokens_total", "Prompt tokens computed.", counters.prompt_tokens),
            ("generation_tokens_total", "Tokens produced.", counters.generation_tokens),
            ("num_preemptions_total", "Requests preempted.", counters.preemptions),
            ("prefix_cache_queries_total", "Tokens looked up in the prefix cache.", counters.prefix_queries),
            ("prefix_cache_hits_total", "Tokens found in the prefix cache.", counters.prefix_hits),
        ):
            yield from family(f"vllm:{name}", "counter", text, [(labels, float(value))])
        finished = [
            ({**labels, "finished_reason": reason}, float(count)) for reason, count in self._success.items()
        ]
        yield from family("vllm:request_success_total", "counter", "Requests that ended.", finished)
        info = {
            "engine": "0",
            "block_size": str(BLOCK),
            "num_gpu_blocks": str(engine.memory.blocks),
            "gpu_memory_utilization": "0.9",
            "enable_prefix_caching": str(self._settings.limits.prefix_caching),
            "cache_dtype": "auto",
        }
        yield from family("vllm:cache_config_info", "gauge", "How the KV memory is set up.", [(info, 1.0)])
        for histogram in (
            *(self._ttft, self._between, self._per_token, self._whole, self._queue, self._inference),
            *(self._prefill, self._decode, self._prompt, self._output, self._step),
        ):
            yield from histogram.lines(labels)
