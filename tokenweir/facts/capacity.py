"""How many KV tokens fit beside the weights."""

from tokenweir.facts.gpus import gpu as find_gpu
from tokenweir.facts.models import model as find_model

BLOCK = 16
"""Tokens of a KV block (vLLM's default block size)."""

UTILIZATION = 0.9
"""Share of the memory that an engine takes (vLLM's `gpu_memory_utilization` default)."""

RUNTIME_GB = 1.2
"""Activations, CUDA graphs and runtime beside the weights. Recorded vLLM 0.19 run, Llama-3.1-8B on an RTX
4090: 0.9 x 25.25 - 16.06 of weights - 41,408 KV tokens x 131,072 bytes leaves 1.24."""


class DoesNotFitError(ValueError):
    """The weights leave no memory for one KV block. The message names the sizes."""


def kv_capacity(gpu: str, model: str, precision: str = "fp16", gpus: int = 1) -> int:
    """KV tokens, a multiple of 16, that `gpus` GPUs of one kind hold beside the model's weights:
    (0.9 x memory - weights - 1.2 GB) / KV bytes a token; weights and KV are split evenly, the 1.2 GB are on
    each.

    Raises UnknownFactError for unknown names, DoesNotFitError when not one block fits."""
    card, shape = find_gpu(gpu), find_model(model)
    weights = shape.weights_gb(precision)
    usable = gpus * (UTILIZATION * card.memory_gb - RUNTIME_GB)
    blocks = int((usable - weights) * 1e9 / (shape.kv_bytes_per_token * BLOCK))
    if blocks < 1:
        raise DoesNotFitError(
            f"{shape.name} at {precision} needs {weights:.1f} GB for its weights; {gpus} x {card.name} "
            f"offers {usable:.1f} GB: use a smaller precision or more GPUs"
        )
    return blocks * BLOCK
