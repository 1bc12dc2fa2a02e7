"""The engines that can be read, and how an unknown one is told apart."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from sidecar.telemetry import llamacpp, ollama, sglang, tgi, trtllm, vllm
from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import EngineReading

Reader = Callable[[Page, float], EngineReading | None]

READERS: Final[Mapping[str, Reader]] = {
    module.NAME: module.read for module in (vllm, sglang, llamacpp, tgi, trtllm, ollama)
}
PREFIXES: Final = (
    (vllm.PREFIX, vllm.NAME),
    (sglang.PREFIX, sglang.NAME),
    (llamacpp.PREFIX, llamacpp.NAME),
    (tgi.PREFIX, tgi.NAME),
    (trtllm.PREFIX, trtllm.NAME),
    (trtllm.TRITON_PREFIX, trtllm.NAME),
)
OWNERS: Final[Mapping[str, str]] = {
    "vllm": "vllm",
    "sglang": "sglang",
    "llamacpp": "llamacpp",
    "library": "ollama",
    "tensorrt_llm": "trtllm",
}
"""`owned_by` of an entry of `/v1/models` -> engine."""

METRICS_PATHS: Final[Mapping[str, str]] = {"trtllm": "/prometheus/metrics", "ollama": ollama.PATH}
"""Where the metrics are, if not at `/metrics`."""

GAPS: Final[Mapping[str, tuple[str, ...]]] = {vllm.NAME: vllm.GAPS, sglang.NAME: sglang.GAPS}
"""Engine -> histogram of the times between two tokens, in which preempted requests show."""


def by_page(body: bytes) -> str | None:
    """The engine whose metrics a page holds."""
    for prefix, name in PREFIXES:
        if body.startswith(prefix) or b"\n" + prefix in body or b" " + prefix in body:
            return name
    return None


def by_owner(owner: str | None) -> str | None:
    """The engine that calls itself `owner` in its list of models."""
    return OWNERS.get((owner or "").lower())


def by_server(header: str | None) -> str | None:
    """The engine that sends this `Server` header."""
    return "llamacpp" if (header or "").lower().startswith("llama.cpp") else None
