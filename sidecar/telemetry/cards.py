"""Which of a host's GPUs are a backend's, and several of them as one.

A tensor-parallel engine runs on all its cards in step: the fullest runs out of memory first, the slowest
sets the pace, the hottest throttles first, and one that fails takes the engine with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from sidecar.telemetry.readings import Card, CardReading

SLOWED: Final[Mapping[int, str]] = {
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x20: "software thermal slowdown",
    0x40: "hardware thermal slowdown",
    0x80: "power brake",
}
"""Bits of NVML's clocks event reasons that take speed from a loaded card. Idle (0x1), a chosen clock (0x2),
sync boost (0x10) and display (0x100) do not.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlClocksEventReasons.html"""


class SelectionError(ValueError):
    """The wanted cards are not there; the text names them and those that are."""


def select(cards: Sequence[Card], wanted: Sequence[str], labels: Mapping[str, str]) -> list[Card]:
    """The cards that `wanted` names (by index, UUID, device or PCI bus id; `UUID/3` or `0/3`: MIG instance
    3) and that carry all `labels`; all cards where neither is given. Raises SelectionError."""
    chosen = list(cards)
    if labels:
        chosen = [card for card in cards if all(card.labels.get(k) == v for k, v in labels.items())]
    if labels and not chosen:
        text = ", ".join(f"{name}={value}" for name, value in labels.items())
        raise SelectionError(f"no card is labelled {text}; {_there(cards)}")
    if not wanted:
        return chosen
    found: list[Card] = []
    for name in wanted:
        wanted_name = name.lower()
        named = [card for card in chosen if wanted_name in _names_of(card)]
        if not named:
            raise SelectionError(f"there is no card {name!r}; {_there(cards)}")
        found += [card for card in named if card not in found]
    return found


def fold(cards: Sequence[Card], at: float, source: str) -> CardReading | None:
    """Several cards as one reading; None of none."""
    if not cards:
        return None
    return _alone(cards[0], at, source) if len(cards) == 1 else together(cards, at, source)


def together(cards: Sequence[Card], at: float, source: str) -> CardReading:
    """Some cards as one reading."""
    bits = [card.throttle for card in cards if card.throttle is not None]
    throttle = None
    if bits:
        throttle = 0
        for value in bits:
            throttle |= value
    failed = [card.remap_failed for card in cards if card.remap_failed is not None]
    return CardReading(
        at=at,
        source=source,
        memory_use=_most(card.memory_use for card in cards),
        utilization=_mean(card.utilization for card in cards),
        sm_active=_mean(card.sm_active for card in cards),
        tensor_active=_mean(card.tensor_active for card in cards),
        memory_active=_mean(card.memory_active for card in cards),
        temperature=_most(card.temperature for card in cards),
        power=_sum(card.power for card in cards),
        power_limit=_sum(card.power_limit for card in cards),
        sm_clock=_least(card.sm_clock for card in cards),
        sm_clock_max=_least(card.sm_clock_max for card in cards),
        throttle=throttle,
        throttled=_slowed(throttle),
        xid=_most(card.xid for card in cards),
        ecc_corrected=_sum(card.ecc_corrected for card in cards),
        ecc_uncorrected=_sum(card.ecc_uncorrected for card in cards),
        remap_failed=any(failed) if failed else None,
        name=next((card.name for card in cards if card.name), None),
        cards=len(cards),
        members=tuple(cards),
    )


def _alone(card: Card, at: float, source: str) -> CardReading:
    """What `fold` makes of one card, which most backends have: twice a second, of every one."""
    return CardReading(
        at=at,
        source=source,
        memory_use=card.memory_use,
        utilization=card.utilization,
        sm_active=card.sm_active,
        tensor_active=card.tensor_active,
        memory_active=card.memory_active,
        temperature=card.temperature,
        power=card.power,
        power_limit=card.power_limit,
        sm_clock=card.sm_clock,
        sm_clock_max=card.sm_clock_max,
        throttle=card.throttle,
        throttled=_slowed(card.throttle),
        xid=card.xid,
        ecc_corrected=card.ecc_corrected,
        ecc_uncorrected=card.ecc_uncorrected,
        remap_failed=card.remap_failed,
        name=card.name or None,
        cards=1,
        members=(card,),
    )


def _slowed(throttle: int | None) -> tuple[str, ...]:
    return tuple(text for bit, text in SLOWED.items() if throttle & bit) if throttle else ()


def _names_of(card: Card) -> frozenset[str]:
    """What a card may be called, in lower case."""
    return _names(card.uuid, card.index, card.device, card.pci, card.instance)


@lru_cache(8192)
def _names(uuid: str, index: str, device: str, pci: str, instance: str) -> frozenset[str]:
    names = {uuid, index, device, pci, _short_pci(pci)}
    if instance:
        names = {f"{name}/{instance}" for name in names if name} | {uuid, index}
    return frozenset(name.lower() for name in names if name)


def _short_pci(bus: str) -> str:
    """`00000000:65:00.0` as `0000:65:00.0`, as lspci and the kernel write it."""
    domain, _, rest = bus.partition(":")
    return f"{domain[-4:]}:{rest}" if len(domain) == 8 and rest else ""


def _there(cards: Sequence[Card]) -> str:
    names = [f"{card.index or '?'} ({card.uuid})" for card in cards[:8]]
    more = f" and {len(cards) - 8} more" if len(cards) > 8 else ""
    return f"there are: {', '.join(names)}{more}" if names else "there are none"


def _told(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _most(values: Iterable[float | None]) -> float | None:
    return max(_told(values), default=None)


def _least(values: Iterable[float | None]) -> float | None:
    return min(_told(values), default=None)


def _sum(values: Iterable[float | None]) -> float | None:
    told = _told(values)
    return sum(told) if told else None


def _mean(values: Iterable[float | None]) -> float | None:
    told = _told(values)
    return sum(told) / len(told) if told else None
