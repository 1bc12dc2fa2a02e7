"""Histograms of a page as totals in the record's units."""

from __future__ import annotations

from sidecar.telemetry.exposition import Page
from sidecar.telemetry.readings import Total


def seconds(page: Page, *names: str, having: bytes = b"") -> Total | None:
    """The first of `names` that the page has, counted in seconds there and in ms here."""
    for name in names:
        found = page.histogram(name, having)
        if found is not None:
            return Total(found[0] * 1000, found[1])
    return None


def plain(page: Page, *names: str) -> Total | None:
    """The first of `names` that the page has, in its own unit."""
    for name in names:
        found = page.histogram(name)
        if found is not None:
            return Total(*found)
    return None


def first(page: Page, *names: str) -> float | None:
    """The sum over all label sets of the first of `names` that the page has: a metric that was renamed."""
    for name in names:
        found = page.total(name)
        if found is not None:
            return found
    return None


def share(value: float | None) -> float | None:
    """The value within 0 to 1; engines overshoot by a block."""
    return None if value is None else min(max(value, 0.0), 1.0)
