"""Pages as engines and exporters write them, in several states: numbers move from look to look."""

from __future__ import annotations

from random import Random

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

MODEL = "meta-llama/Llama-3.1-8B-Instruct"
LABELS = {"engine": "0", "model_name": MODEL}
STATES = 8

_TTFT = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
_BETWEEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_REQUEST = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000)
_STEP = (1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16_384)

HISTOGRAMS = {
    "vllm:time_to_first_token_seconds": _TTFT,
    "vllm:inter_token_latency_seconds": _BETWEEN,
    "vllm:request_time_per_output_token_seconds": _BETWEEN,
    "vllm:e2e_request_latency_seconds": _REQUEST,
    "vllm:request_queue_time_seconds": _REQUEST,
    "vllm:request_inference_time_seconds": _REQUEST,
    "vllm:request_prefill_time_seconds": _REQUEST,
    "vllm:request_decode_time_seconds": _REQUEST,
    "vllm:request_prompt_tokens": _TOKENS,
    "vllm:request_generation_tokens": _TOKENS,
    "vllm:request_prefill_kv_computed_tokens": _TOKENS,
    "vllm:request_max_num_generation_tokens": _TOKENS,
    "vllm:request_params_n": (1, 2, 5, 10, 20),
    "vllm:request_params_max_tokens": _TOKENS,
    "vllm:iteration_tokens_total": _STEP,
}
GAUGES = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:engine_sleep_state",
)
COUNTERS = (
    "vllm:prompt_tokens",
    "vllm:prompt_tokens_cached",
    "vllm:generation_tokens",
    "vllm:num_preemptions",
    "vllm:prefix_cache_queries",
    "vllm:prefix_cache_hits",
    "vllm:external_prefix_cache_queries",
    "vllm:external_prefix_cache_hits",
    "vllm:mm_cache_queries",
    "vllm:mm_cache_hits",
)
PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/models", "/health", "/metrics")


class VllmPage:
    """One engine's metrics, written by the client library that vLLM writes them with."""

    def __init__(self, random: Random) -> None:
        self._random = random
        self._registry = registry = CollectorRegistry()
        names = list(LABELS)
        self._gauges = {name: Gauge(name, "As vLLM has it.", names, registry=registry) for name in GAUGES}
        self._counters = {
            name: Counter(name, "As vLLM has it.", names, registry=registry) for name in COUNTERS
        }
        self._histograms = {
            name: Histogram(name, "As vLLM has it.", names, registry=registry, buckets=bounds)
            for name, bounds in HISTOGRAMS.items()
        }
        self._ended = Counter(
            "vllm:request_success", "Ended.", [*names, "finished_reason"], registry=registry
        )
        cache = {"block_size": "16", "num_gpu_blocks": "27680", "cache_dtype": "auto", "engine": "0"}
        Gauge("vllm:cache_config_info", "Cache.", list(cache), registry=registry).labels(**cache).set(1)
        # The web server's own, as vLLM exposes them beside.
        self._http = Histogram(
            "http_request_duration_seconds", "Latency.", ["handler", "method"], registry=registry,
            buckets=(0.1, 0.5, 1),
        )  # fmt: skip
        self._http_fine = Histogram(
            "http_request_duration_highr_seconds", "Latency.", registry=registry, buckets=_TTFT
        )

    def step(self) -> bytes:
        """Let some work happen; the page then."""
        random = self._random
        running = random.randint(1, 64)
        self._gauges["vllm:num_requests_running"].labels(**LABELS).set(running)
        self._gauges["vllm:num_requests_waiting"].labels(**LABELS).set(random.randint(0, 9))
        self._gauges["vllm:kv_cache_usage_perc"].labels(**LABELS).set(random.random())
        self._gauges["vllm:engine_sleep_state"].labels(**LABELS).set(0)
        for counter in self._counters.values():
            counter.labels(**LABELS).inc(random.randint(0, 20_000))
        for name, histogram in self._histograms.items():
            for _ in range(random.randint(20, 60)):
                value = random.lognormvariate(5, 1.5) if "tokens" in name else random.lognormvariate(-3, 1.5)
                histogram.labels(**LABELS).observe(value)
        for reason in ("stop", "length", "abort", "error"):
            self._ended.labels(**LABELS, finished_reason=reason).inc(random.randint(0, 9))
        for path in PATHS:
            self._http.labels(handler=path, method="POST").observe(random.random())
        self._http_fine.observe(random.random())
        return generate_latest(self._registry)


def vllm_pages(seed: int) -> list[bytes]:
    """Successive pages of one engine."""
    page = VllmPage(Random(seed))
    return [page.step() for _ in range(STATES)]


FIELDS = {
    "DCGM_FI_DEV_SM_CLOCK": 1755,
    "DCGM_FI_DEV_MAX_SM_CLOCK": 1980,
    "DCGM_FI_DEV_GPU_TEMP": 61,
    "DCGM_FI_DEV_POWER_USAGE": 512.25,
    "DCGM_FI_DEV_ENFORCED_POWER_LIMIT": 700,
    "DCGM_FI_DEV_GPU_UTIL": 97,
    "DCGM_FI_DEV_FB_FREE": 8000,
    "DCGM_FI_DEV_FB_USED": 72_000,
    "DCGM_FI_DEV_FB_RESERVED": 621,
    "DCGM_FI_DEV_XID_ERRORS": 0,
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": 4,
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": 0,
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": 0,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": 0,
    "DCGM_FI_PROF_SM_ACTIVE": 0.93,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": 0.41,
    "DCGM_FI_PROF_DRAM_ACTIVE": 0.6,
}
CARDS_OF_A_HOST = 8


def exporter_pages(seed: int) -> list[bytes]:
    """Successive pages of the exporter of a host with eight cards, with the shipped fields."""
    random = Random(seed)
    pages = []
    for _ in range(STATES):
        lines = []
        for name, value in FIELDS.items():
            lines += [f"# HELP {name} As the exporter has it.", f"# TYPE {name} gauge"]
            for card in range(CARDS_OF_A_HOST):
                labels = (
                    f'gpu="{card}",UUID="GPU-{card}",pci_bus_id="00000000:{card:02X}:00.0",'
                    f'device="nvidia{card}",modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-a"'
                )
                noisy = value if value in {0, 4} else round(value * random.uniform(0.9, 1.0), 3)
                lines.append(f"{name}{{{labels}}} {noisy}")
        pages.append(("\n".join(lines) + "\n").encode())
    return pages
