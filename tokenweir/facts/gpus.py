"""What is known of each kind of GPU: memory, bandwidth, compute, and how much of both an engine reaches.

Sources:
- bandwidth and dense 16-bit TFLOPS: the makers' data sheets (NVIDIA A100, H100, H200, T4, L4, L40S, A10, Ada
  architecture white paper for the RTX 4090: 165.2 TFLOPS with 32-bit accumulation).
- memory: what the driver reports. RTX 4090: the `device_total_memory_bytes` of the recorded vLLM run
  (25.25e9). Others: the total that PyTorch names in its out-of-memory messages (A100 79.15 and 39.5 GiB, H100
  79.1, T4 14.75, L4 22.05 GiB), which is what an engine's `gpu_memory_utilization` multiplies.
- reached shares: A100 and H100 from Vidur's measured operation times of Llama-2-7B (microsoft/vidur, MIT):
  steps of 9.1 ms and 5.5 ms at one token, then 2.2 + 0.064 T and 2.9 + 0.020 T ms. RTX 4090 from the recorded
  vLLM 0.19 run of Llama-3.1-8B (casys-kaist/LLMServingSim, MIT): 15 ms at one token, 0.088 ms a token.
- `measured=False`: no run of that GPU is at hand; its steps are *derived* by bandwidth and TFLOPS with the
  shares that the A100 reaches.
"""

import re
from dataclasses import dataclass

from tokenweir.facts.names import UnknownFactError, canonical

A100_BANDWIDTH_SHARE = 0.712
"""13.21 GB read for each step of Llama-2-7B / 2,039 GB/s / 9.1 ms."""
A100_COMPUTE_SHARE = 0.649
"""2 x 6.476e9 operations a token / 312 TFLOPS / 0.064 ms."""
A100_FIXED_MS = 2.2
"""What a compute-bound step of Llama-2-7B takes apart from its tokens."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """One kind of GPU. GB and TFLOPS are decimal (1e9, 1e12)."""

    name: str
    memory_gb: float
    """Memory that the driver reports, 1e9 bytes."""
    bandwidth_gbs: float
    tflops: float
    """Dense 16-bit multiply-add rate of the tensor cores."""
    fp8: bool
    """Has fp8 tensor cores (twice the 16-bit rate); else fp8 weights save memory and bandwidth only."""
    bandwidth_share: float
    """Share of the bandwidth that a small step reaches."""
    compute_share: float
    """Share of the TFLOPS that a large step reaches."""
    fixed_ms: float
    """What a compute-bound step takes apart from its tokens (launches, synchronisation)."""
    link_gbs: float
    """One direction of the link to other GPUs of the same host."""
    power_w: float
    """Board power limit, from the data sheet."""
    measured: bool
    """Whether a measured run stands behind the shares; False: derived by bandwidth and TFLOPS."""


def _derived(
    name: str, *, memory: float, bandwidth: float, tflops: float, fp8: bool, link: float, power: float
) -> Gpu:
    return Gpu(
        name=name,
        memory_gb=memory,
        bandwidth_gbs=bandwidth,
        tflops=tflops,
        fp8=fp8,
        bandwidth_share=A100_BANDWIDTH_SHARE,
        compute_share=A100_COMPUTE_SHARE,
        fixed_ms=A100_FIXED_MS,
        link_gbs=link,
        power_w=power,
        measured=False,
    )


_GPUS = {
    gpu.name: gpu
    for gpu in (
        Gpu(
            "A100-80G",
            84.99,
            2039,
            312,
            False,
            A100_BANDWIDTH_SHARE,
            A100_COMPUTE_SHARE,
            A100_FIXED_MS,
            300,
            400,
            measured=True,
        ),
        # 13.21 GB / 3,350 GB/s / 5.5 ms; 2 x 6.476e9 / 990 TFLOPS / 0.020 ms.
        Gpu("H100", 84.93, 3350, 990, True, 0.717, 0.654, 2.9, 450, 700, measured=True),
        # 15.01 GB / 1,008 GB/s is 14.9 ms, all that a step of one token takes; 2 x 6.980e9 / 165.2 TFLOPS /
        # 0.088 ms; the fixed part makes it 17 ms at 64 tokens; PCIe 4.0 x16.
        Gpu("RTX-4090", 25.25, 1008, 165.2, True, 1.0, 0.960, 5.9, 32, 450, measured=True),
        _derived("A100-40G", memory=42.41, bandwidth=1555, tflops=312, fp8=False, link=300, power=400),
        _derived("H200", memory=150.1, bandwidth=4800, tflops=990, fp8=True, link=450, power=700),
        _derived("L40S", memory=47.7, bandwidth=864, tflops=362, fp8=True, link=32, power=350),
        _derived("L4", memory=23.68, bandwidth=300, tflops=121, fp8=True, link=32, power=72),
        _derived("A10", memory=23.7, bandwidth=600, tflops=125, fp8=False, link=32, power=150),
        _derived("T4", memory=15.84, bandwidth=320, tflops=65, fp8=False, link=16, power=70),
        # Two ordinary cores: llama.cpp makes about 50 tokens/s of SmolLM2-135M (0.1 GB read a token), so
        # about a quarter of one memory channel's 20 GB/s; 2 x 3 GHz x 32 operations a cycle.
        Gpu("CPU", 16.0, 20, 0.19, False, 0.25, 0.5, 0.0, 10, 65, measured=False),
    )
}

GPU_NAMES = tuple(_GPUS)

_BY_CANONICAL = {canonical(name): gpu for name, gpu in _GPUS.items()}
# As the driver, DCGM and people write them; tried in this order.
_PATTERNS = (
    (r"a100(?!\d).*40", "A100-40G"),
    (r"a100(?!\d)", "A100-80G"),
    (r"h200(?!\d)", "H200"),
    (r"h100(?!\d)", "H100"),
    (r"l40s", "L40S"),
    (r"\bl4\b", "L4"),
    (r"\ba10g?\b", "A10"),
    (r"\bt4\b", "T4"),
    (r"4090(?!\d)", "RTX-4090"),
)


def gpu(name: str) -> Gpu:
    """The facts of a GPU by any usual spelling (`A100-80G`, `NVIDIA A100-SXM4-80GB`, `Tesla T4`).

    Raises UnknownFactError, which lists the known kinds."""
    key = canonical(name)
    if found := _BY_CANONICAL.get(key):
        return found
    for pattern, known in _PATTERNS:
        if re.search(pattern, key):
            return _GPUS[known]
    raise UnknownFactError("GPU", name, GPU_NAMES)
