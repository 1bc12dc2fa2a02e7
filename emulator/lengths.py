"""How long an answer becomes when nobody says it."""

from __future__ import annotations

from hashlib import blake2b
from math import exp
from statistics import NormalDist

LOG_MEAN, LOG_SD, LONGEST = 5.02, 0.86, 1000
"""Logarithm of the output tokens in the Azure conversation trace of 2023 (Azure/AzurePublicDataset, CC-BY
4.0; 19,366 requests, at most 1,000 tokens): a median of about 150 and a mean of about 210 tokens."""

_NORMAL = NormalDist()


def key(prompt: str, seed: int | None, choice: int, salt: int) -> int:
    """A 64-bit number that stands for one choice of one request: equal for equal prompt, seed and choice."""
    digest = blake2b(f"{salt}/{seed}/{choice}/".encode(), digest_size=8)
    digest.update(prompt.encode("utf-8", "surrogatepass"))
    return int.from_bytes(digest.digest(), "big")


def drawn(number: int) -> int:
    """Output tokens of a request: the lognormal quantile that its key falls on, 1 to 1,000."""
    share = (number / 2**64) * 0.9998 + 0.0001
    return max(1, min(LONGEST, round(exp(LOG_MEAN + LOG_SD * _NORMAL.inv_cdf(share)))))
