"""One simulated inference server: the emulator's engine, and what befalls it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, nan

from emulator.engine import Engine, Exhaustion, Limits
from tokenweir import facts


@dataclass(frozen=True)
class ServerSpec:
    """What a server is."""

    gpu: str = "A100-80G"
    model: str = "llama-2-13b"
    precision: str = "fp16"
    capacity: int | None = None
    """KV tokens; None: what the facts say."""
    kind: Exhaustion = Exhaustion.PREEMPT
    slowdown: float = 1.0
    """How many times slower than its table it is (a GPU that throttles)."""
    ready_at: float = 0.0
    """ms from which it serves: a cold one has its model to load first."""
    restart_ms: float = 60_000.0
    """From a crash until it serves again: the process starts and loads its model."""
    hash_tokens: int = facts.BLOCK
    told: str | None = None
    """What its operator told of its precision; None: what it is."""

    @property
    def kv_tokens(self) -> int:
        """KV capacity in whole blocks."""
        if self.capacity is not None:
            return self.capacity // facts.BLOCK * facts.BLOCK
        return facts.kv_capacity(self.gpu, self.model, self.precision)

    def but(self, **changes: object) -> ServerSpec:
        """A copy with some members changed."""
        return replace(self, **changes)  # type: ignore[arg-type]


class Server:
    """A running server. Its engine's clock is the simulation's, in ms."""

    def __init__(self, spec: ServerSpec) -> None:
        self.spec = spec
        limits = Limits(hash_tokens=spec.hash_tokens)
        time = facts.step_time(spec.gpu, spec.model, spec.precision)
        self.engine = Engine(time, spec.kv_tokens, spec.kind, limits)
        self.engine.pace.slowdown = spec.slowdown
        self.up = spec.ready_at <= 0
        self.up_again = spec.ready_at if not self.up else nan
        self.crashes = 0

    @property
    def capacity(self) -> int:
        """KV tokens."""
        return self.engine.capacity

    def next_change(self) -> float:
        """When something happens next, as far as is known (inf: nothing)."""
        return self.engine.next_change() if self.up else self.up_again

    def died(self, now: float) -> None:
        """The engine crashed at `now`."""
        self.up, self.up_again = False, now + self.spec.restart_ms
        self.crashes += 1

    def start(self, now: float) -> None:
        """It serves, with empty memory."""
        self.engine.restart(now)
        self.up, self.up_again = True, inf
