"""Running mean, median and spread of a model's output lengths.

Lengths go into logarithmic bins with weights that decay, so memory is bounded and a change of traffic is
followed. An output cut off by its `max_tokens` only says "at least so long": the distribution is the
Kaplan-Meier estimate over the bins (Kaplan & Meier, JASA 53, 1958), so that clients who ask for 16 tokens
do not pull the mean down for those who ask for none.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

PER_OCTAVE: Final = 8
BINS: Final = 21 * PER_OCTAVE + 1
"""1 to 2^21 tokens; the first bin holds outputs of no token."""
MEMORY: Final = 2000
"""Completions that count: the weight of one falls to 1/e after so many."""
RESCALE_AT: Final = 1e12


@dataclass(frozen=True, slots=True)
class Figures:
    """What is published of a distribution of lengths, in tokens; `spread` is the deviation of ln(1 +
    length)."""

    mean: float
    median: float
    spread: float


class Lengths:
    """A decaying histogram of output lengths, censored ones apart."""

    def __init__(self) -> None:
        self.count = 0
        self._weight = 1.0
        """Weight of the next observation; it grows instead of all others shrinking."""
        self._ended = [0.0] * BINS
        self._cut = [0.0] * BINS
        self._sum = [0.0] * BINS
        """Weighted sum of the lengths in each bin, both kinds, so that a bin stands for its own mean."""

    def add(self, length: float, cut: bool = False) -> None:
        """One output of `length` tokens; `cut`: it was stopped by its limit."""
        at = _bin(length)
        (self._cut if cut else self._ended)[at] += self._weight
        self._sum[at] += self._weight * length
        self.count += 1
        self._weight *= 1 + 1 / MEMORY
        if self._weight > RESCALE_AT:
            self._rescale()

    def figures(self) -> Figures | None:
        """The estimate, or None before the first observation."""
        shares = self._distribution()
        if not shares:
            return None
        mean = sum(share * value for value, share in shares)
        log_mean = sum(share * math.log1p(value) for value, share in shares)
        variance = sum(share * (math.log1p(value) - log_mean) ** 2 for value, share in shares)
        return Figures(mean, _median(shares), math.sqrt(max(variance, 0.0)))

    def dump(self) -> dict[str, Any]:
        """The state as plain JSON; only the bins that hold something."""
        return {
            "count": self.count,
            "weight": self._weight,
            "bins": {
                str(i): [self._ended[i], self._cut[i], self._sum[i]]
                for i in range(BINS)
                if self._ended[i] or self._cut[i]
            },
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Lengths:
        """The object behind a dump. Raises ValueError, KeyError or TypeError on a damaged one."""
        lengths = cls()
        lengths.count = int(state["count"])
        lengths._weight = _sane(state["weight"])
        for text, (ended, cut, total) in state["bins"].items():
            at = int(text)
            if not 0 <= at < BINS:
                raise ValueError("no such bin")
            lengths._ended[at], lengths._cut[at], lengths._sum[at] = _sane(ended), _sane(cut), _sane(total)
        return lengths

    def _distribution(self) -> list[tuple[float, float]]:
        """(length, share) of the Kaplan-Meier estimate; what no end was seen of stays at the longest seen."""
        at_risk = sum(self._ended) + sum(self._cut)
        if at_risk <= 0:
            return []
        survival = 1.0
        shares: list[tuple[float, float]] = []
        longest = 0.0
        for i in range(BINS):
            inside = self._ended[i] + self._cut[i]
            if inside <= 0:
                continue
            longest = self._sum[i] / inside
            if self._ended[i] > 0:
                share = survival * self._ended[i] / at_risk
                shares.append((longest, share))
                survival -= share
            at_risk -= inside
            if at_risk <= inside * 1e-12:
                break
        if survival > 1e-9:
            shares.append((longest, survival))
        total = sum(share for _, share in shares)
        return [(value, share / total) for value, share in shares]

    def _rescale(self) -> None:
        for values in (self._ended, self._cut, self._sum):
            for i in range(BINS):
                values[i] /= self._weight
        self._weight = 1.0


def _bin(length: float) -> int:
    if length < 1:
        return 0
    return min(1 + int(PER_OCTAVE * math.log2(length) + 1e-9), BINS - 1)


def _median(shares: list[tuple[float, float]]) -> float:
    reached = 0.0
    for value, share in shares:
        reached += share
        if reached >= 0.5 - 1e-12:
            return value
    return shares[-1][0]


def _sane(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number) or number < 0:
        raise ValueError("not a finite number from 0")
    return number
