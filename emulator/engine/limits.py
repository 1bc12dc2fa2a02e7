"""What an engine is configured to."""

from dataclasses import dataclass

from tokenweir.facts import BLOCK


@dataclass(frozen=True, slots=True)
class Limits:
    """An engine's limits; the defaults are vLLM's."""

    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    hash_tokens: int = BLOCK
    """Tokens of a hash block, a multiple of 16."""
    prefix_caching: bool = True
    async_scheduling: bool = True
    watermark: float | None = None
    """Share of the blocks that admission leaves free; None: what the kind of exhaustion has."""

    def __post_init__(self) -> None:
        if self.hash_tokens < BLOCK or self.hash_tokens % BLOCK:
            raise ValueError(f"hash_tokens must be a multiple of {BLOCK}, got {self.hash_tokens}")
        if self.max_num_seqs < 1 or self.max_num_batched_tokens < self.max_num_seqs:
            raise ValueError(
                f"max_num_batched_tokens ({self.max_num_batched_tokens}) must not be below max_num_seqs "
                f"({self.max_num_seqs}), and that not below 1"
            )
