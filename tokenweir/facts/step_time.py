"""How long one step of an engine takes.

A step with T tokens in it (prompt chunks and one token of each decoding sequence) reads all weights once and
multiplies each token with them: it is bound by the memory while T is small and by the tensor cores when T is
large. Between both the measured times bend smoothly; the cube norm of the two bounds follows Vidur's A100
times within 8 % (T = 64: 10.0 for 9.7 ms, 128: 12.3 for 12.2, 256: 19.3 for 17.8, 1,024: 67.8 for 67.9). On
top comes the attention over the KV held and the scheduler's own time.
"""

from dataclasses import dataclass
from math import cbrt

from tokenweir.facts.gpus import Gpu
from tokenweir.facts.gpus import gpu as find_gpu
from tokenweir.facts.models import Model
from tokenweir.facts.models import model as find_model
from tokenweir.facts.models import precision as find_precision

SCHEDULER_MS = 0.64
SCHEDULER_PER_SEQUENCE_MS = 0.0052
"""The part of a step that grows with neither tokens nor KV: scheduling, sampling, output. Profile of
Llama-3.1-8B on an RTX 4090 (casys-kaist/LLMServingSim, MIT): 0.64 + 0.0052 x sequences + 1.37e-4 x KV tokens
(ms)."""

KV_BANDWIDTH_SHARE = 0.619
"""Share of the bandwidth at which attention reads KV: 131,072 bytes / 1,008 GB/s / 2.1e-4 ms. The profile's
1.37e-4 is what the kernel alone reaches; the recorded run as a whole shows 2.1e-4, fitted to its seconds of
pure decoding with everything else fixed (2.13e-4 on its first 60 s, 2.11e-4 on the rest: the lower quartile,
as recomputation after preemption hides in some seconds)."""

ALL_REDUCE_MS = 0.015
"""Latency of one all-reduce over NVLink; two for each layer when a model is split over GPUs. Derived."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """The step time of one engine as a function of what is in the step. All in ms."""

    memory: float
    """Reading the weights once."""
    fixed: float
    """What a compute-bound step takes apart from its tokens."""
    per_token: float
    """Computing one token when compute-bound."""
    scheduler: float
    per_sequence: float
    per_kv_token: float
    """Reading one token of KV."""
    attention: float
    """Computing the attention of one prompt token to one token of context: what makes long prompts more than
    linear."""

    def ms(self, tokens: float, sequences: float, kv_tokens: float) -> float:
        """Duration of a step with `tokens` tokens of `sequences` sequences that attend to `kv_tokens` tokens
        of KV."""
        return (
            self.matrices(tokens)
            + self.scheduler
            + self.per_sequence * sequences
            + self.per_kv_token * kv_tokens
        )

    def matrices(self, tokens: float) -> float:
        """The part of the step that depends on the number of tokens alone."""
        compute = self.fixed + self.per_token * tokens
        return cbrt(self.memory**3 + compute**3)


@dataclass(frozen=True, slots=True)
class StepCost:
    """The straight-line cost that the policy reckons with (ms): a step with n sequences and kv tokens held
    takes `base + per_sequence * n + per_kv_token * kv`, and a prompt token adds `prefill` once."""

    prefill: float
    base: float
    per_sequence: float
    per_kv_token: float


# Llama-2-70B over 8 x A100-80G (Mutinifni/splitwise-sim, MIT): tokens take 43.6 + 0.197 x sequences + 4.1e-4
# x context ms, prompts of 512 and 2,048 tokens 93.0 and 274.2 ms. Far above what bandwidth alone would give:
# the run was bound by launches.
_LLAMA_2_70B_8_A100 = StepTime(
    memory=42.9,
    fixed=0.0,
    per_token=0.118,
    scheduler=0.64,
    per_sequence=0.197,
    per_kv_token=4.1e-4,
    attention=1.6e-6,
)


def step_time(gpu: str, model: str, precision: str = "fp16", gpus: int = 1) -> StepTime:
    """The step time of a model on one kind of GPU: measured where a run is at hand, else derived from
    bandwidth and TFLOPS with the shares that the GPU (or, for GPUs without a run, the A100) reaches. Raises
    UnknownFactError for unknown names."""
    card, shape, kind = find_gpu(gpu), find_model(model), find_precision(precision)
    if (card.name, shape.name, kind, gpus) == ("A100-80G", "llama-2-70b", "fp16", 8):
        return _LLAMA_2_70B_8_A100
    bandwidth_gbs = card.bandwidth_gbs * gpus
    rate = card.tflops * (2 if kind == "fp8" and card.fp8 else 1) * gpus
    exchange_ms = 0.0 if gpus == 1 else 2 * shape.layers * ALL_REDUCE_MS
    return StepTime(
        memory=shape.read_gb(kind) / (bandwidth_gbs * card.bandwidth_share) * 1e3 + exchange_ms,
        # The fixed part is launches, so it grows with the layers; it was measured on a model of 32.
        fixed=card.fixed_ms * shape.layers / 32 + exchange_ms,
        per_token=2 * shape.layer_parameters / (rate * card.compute_share * 1e9)
        + _exchange_per_token_ms(card, shape, gpus),
        scheduler=SCHEDULER_MS,
        per_sequence=SCHEDULER_PER_SEQUENCE_MS,
        per_kv_token=shape.kv_bytes_per_token / (bandwidth_gbs * KV_BANDWIDTH_SHARE) / 1e6,
        # Two products of the head dimension for each head, in 16 bits whatever the weights have.
        attention=4
        * shape.layers
        * shape.heads
        * shape.head_dim
        / (card.tflops * gpus * card.compute_share * 1e9),
    )


def _exchange_per_token_ms(card: Gpu, shape: Model, gpus: int) -> float:
    """Sending one token's activations round the ring of GPUs, twice a layer. Derived from the link's data
    sheet."""
    sent_bytes = 2 * shape.layers * shape.hidden * 2 * 2 * (gpus - 1) / gpus
    return sent_bytes / card.link_gbs / 1e6


def coefficients(gpu: str, model: str, precision: str = "fp16", gpus: int = 1) -> StepCost:
    """The straight-line start values for the policy, taken from `step_time`: `base` and `per_sequence` from
    decoding steps of 1 and 64 sequences, `prefill` from what 2,048 prompt tokens add to a step of 64. Raises
    UnknownFactError for unknown names."""
    time = step_time(gpu, model, precision, gpus)
    one, many, chunk = time.matrices(1), time.matrices(64), time.matrices(64 + 2048)
    slope = (many - one) / 63
    return StepCost(
        prefill=(chunk - many) / 2048,
        base=one - slope + time.scheduler,
        per_sequence=slope + time.per_sequence,
        per_kv_token=time.per_kv_token,
    )
