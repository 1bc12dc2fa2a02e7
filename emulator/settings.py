"""What an emulated server is: GPU, model, kind of engine, limits."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from emulator.engine import Exhaustion, Limits
from tokenweir import facts


class SettingsError(ValueError):
    """Settings that contradict each other or the facts. The message says which and what to do."""


@dataclass(frozen=True)
class Settings:
    """Everything that a server is started with."""

    gpu: str = "A100-80G"
    model: str = "llama-3-8b"
    precision: str = "fp16"
    gpus: int = 1
    kind: Exhaustion = Exhaustion.PREEMPT
    capacity: int | None = None
    """KV tokens; None: what the facts say."""
    max_model_len: int | None = None
    """Longest prompt and output together; None: the model's context, at most the capacity."""
    speed: float = 1.0
    startup_seconds: float = 0.0
    api_key: str | None = None
    served_names: tuple[str, ...] = ()
    """Names that requests may give; empty: `model` as given."""
    seed: int = 0
    finish_abandoned: bool = False
    """Run a non-streamed request on when its client has left, as llama.cpp does."""
    journal: Path | None = None
    """File to which the ids of executed requests are appended."""
    kv_bytes: int = 0
    """Bytes of real tensors that stand for a token's KV cache; 0: none are kept, and no cache is moved."""
    limits: Limits = field(default_factory=Limits)

    def __post_init__(self) -> None:
        if self.speed <= 0:
            raise SettingsError(f"speed must be above 0, got {self.speed}")
        if self.gpus < 1:
            raise SettingsError(f"gpus must be at least 1, got {self.gpus}")
        if self.startup_seconds < 0:
            raise SettingsError(f"startup seconds must not be negative, got {self.startup_seconds}")
        if self.kv_tokens < facts.BLOCK:
            raise SettingsError(
                f"capacity must be at least one block of {facts.BLOCK} tokens, got {self.capacity}"
            )
        if self.kv_bytes < 0:
            raise SettingsError(f"KV bytes of a token must not be negative, got {self.kv_bytes}")
        if self.max_model_len is not None and not 2 <= self.max_model_len <= self.kv_tokens:
            raise SettingsError(
                f"max-model-len must be between 2 and the KV capacity of {self.kv_tokens} tokens, "
                f"got {self.max_model_len}: lower it or raise the capacity"
            )

    @property
    def kv_tokens(self) -> int:
        """KV capacity, whole blocks. Raises what `facts.kv_capacity` raises."""
        if self.capacity is not None:
            return self.capacity // facts.BLOCK * facts.BLOCK
        return facts.kv_capacity(self.gpu, self.model, self.precision, self.gpus)

    @property
    def context(self) -> int:
        """Most tokens that one request may have, prompt and output."""
        return self.max_model_len or min(facts.model(self.model).context, self.kv_tokens)

    @property
    def names(self) -> tuple[str, ...]:
        """Model names that the server answers to, the first being its own."""
        return self.served_names or (self.model,)
