"""How loaded the backends of one model are, and who waits for it: what the breaker, burst mode, precision and
the spares decide by.

The load is measured memory use, never the predicted peak, which the policy fills by design. It is weighted by
capacity, over the backends that may get requests; one that ramps counts with the share that it may take.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tokenweir.contract.records import Priority

UNKNOWN_CAPACITY: Final = 1.0
"""Weight of a backend in a fleet in which none tells its capacity: all are then alike."""


@dataclass(frozen=True, slots=True)
class BackendUse:
    """One backend's part in the load of a model."""

    use: float | None
    """Memory use, 0 to 1; None where nobody tells it."""
    capacity: int | None
    """KV tokens."""
    usable: bool
    admit: float = 1.0
    precision: str = ""
    fp8: bool = False
    """Whether its GPU computes in fp8."""
    spare: bool = False
    """Of the role standby: what it serves counts, but nobody misses it."""


@dataclass(frozen=True, slots=True)
class Waiting:
    """Who waits for a model, over all gateways."""

    depth: int = 0
    oldest_ms: Mapping[Priority, float] = field(default_factory=dict)
    """Longest wait of each class in which somebody waits."""

    def longest(self) -> float:
        """Longest wait of anybody, ms."""
        return max(self.oldest_ms.values(), default=0.0)

    def share(self, allowed_ms: Callable[[Priority], float]) -> float:
        """Largest share of its allowed wait that a class has used up; 1 where none may wait."""
        shares = (
            age / allowed if (allowed := allowed_ms(priority)) > 0 else 1.0
            for priority, age in self.oldest_ms.items()
        )
        return max(shares, default=0.0)


@dataclass(frozen=True, slots=True)
class ModelLoad:
    """The load of a model. `use` is None where no usable backend tells its memory use."""

    use: float | None
    used: float
    """Tokens in use on the usable backends (shares of a backend where no capacity is known)."""
    capacity: float
    usable: int
    backends: int
    waiting: Waiting
    expected: int = 0
    """Of `backends` those that are no spares: how many the model is to have."""

    def text(self) -> str:
        """The load in words."""
        use = "memory use not told" if self.use is None else f"memory use {self.use:.0%}"
        waits = f"{self.waiting.depth} waiting" if self.waiting.depth else "nobody waits"
        return f"{use} over {self.usable} of {self.backends} backends, {waits}"


def model_load(backends: Iterable[BackendUse], waiting: Waiting) -> ModelLoad:
    """The load of a model from its backends."""
    listed = list(backends)
    known = [one.capacity for one in listed if one.capacity]
    middle = sum(known) / len(known) if known else UNKNOWN_CAPACITY
    used = capacity = 0.0
    told = False
    for one in listed:
        if not one.usable or one.use is None:
            continue
        told = True
        room = (one.capacity or middle) * one.admit
        capacity += room
        used += min(one.use * (one.capacity or middle), room)
    return ModelLoad(
        use=used / capacity if told and capacity > 0 else None,
        used=used,
        capacity=capacity,
        usable=sum(one.usable for one in listed),
        backends=len(listed),
        waiting=waiting,
        expected=sum(not one.spare for one in listed),
    )
