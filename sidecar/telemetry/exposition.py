"""Finds single metrics in a page of the Prometheus text format.

A page of vLLM has 60 KB and some 500 samples, of which a handful are wanted, twice a second, of every
backend. So the page is searched for them as bytes; the format groups the samples of a metric under its `#
TYPE` line.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import json
import math
import re

NEAR_BEFORE, NEAR_AFTER = 256, 2048
"""How far around its last place a metric is looked for first: numbers grow by digits, so it moves a
little."""


ESCAPE = re.compile(r"\\(.)", re.DOTALL)


class Page:
    """One scraped page. `places` is kept by the caller from scrape to scrape: metric name -> last offset."""

    __slots__ = ("body", "places")

    def __init__(self, body: bytes, places: dict[str, int] | None = None) -> None:
        self.body = _unquoted(body)
        self.places = {} if places is None else places

    def samples(self, name: str) -> list[tuple[bytes, float]]:
        """(labels as written between the braces, value) of every sample of `name`; values that are no finite
        number are left out. A counter may be asked for with or without its `_total`."""
        return [
            (labels, value)
            for labels, value in _samples(self.body, name, self._group(name))
            if _finite(value)
        ]

    def total(self, name: str) -> float | None:
        """Sum over all label sets, or None where the page has no such metric."""
        found = self.samples(name)
        return sum(value for _, value in found) if found else None

    def mean(self, name: str) -> float | None:
        """Mean over all label sets, or None."""
        found = self.samples(name)
        return sum(value for _, value in found) / len(found) if found else None

    def _group(self, name: str) -> int:
        """Offset of the first line of the metric's group, or -1."""
        marker = f"# TYPE {name} ".encode()
        last = self.places.get(name)
        if last is not None:
            start = max(0, last - NEAR_BEFORE)
            at = self.body.find(marker, start, last + NEAR_AFTER)
            if at >= 0:
                self.places[name] = at
                return at
        at = self.body.find(marker)
        if at >= 0:
            self.places[name] = at
            return at
        self.places.pop(name, None)
        return -1


def label(labels: bytes, name: str) -> str | None:
    """The value of one label, or None. Escapes (`\\\\`, `\\"`, `\\n`) are decoded."""
    at = 0
    needle = f'{name}="'.encode()
    while True:
        at = labels.find(needle, at)
        if at < 0:
            return None
        if at == 0 or labels[at - 1 : at] in {b",", b" ", b"{"}:
            break
        at += 1
    start = end = at + len(needle)
    while end < len(labels) and labels[end] != 0x22:
        end += 2 if labels[end] == 0x5C else 1
    raw = labels[start:end].decode("utf-8", "replace")
    if "\\" not in raw:
        return raw
    return ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], raw)


def _samples(body: bytes, name: str, group: int) -> list[tuple[bytes, float]]:
    """The samples that stand together from `group` on, or from the first line of that name."""
    key = name.encode()
    if group >= 0:
        at = body.find(b"\n", group) + 1
        if at == 0:
            return []
    else:
        at = _first_line(body, key)
        if at < 0:
            return []
    found: list[tuple[bytes, float]] = []
    while at < len(body):
        end = body.find(b"\n", at)
        end = len(body) if end < 0 else end
        line = body[at:end]
        if line.startswith(key):
            sample = _sample(line, len(key))
            if sample is not None:
                found.append(sample)
            elif found:
                break
        elif not line.startswith(b"# HELP ") or found:
            break
        at = end + 1
    return found


def _first_line(body: bytes, key: bytes) -> int:
    """Offset of the first sample of a page without `# TYPE` lines, or -1."""
    for follower in (b"{", b" "):
        needle = key + follower
        if body.startswith(needle):
            return 0
        at = body.find(b"\n" + needle)
        if at >= 0:
            return at + 1
    return -1


def _sample(line: bytes, length: int) -> tuple[bytes, float] | None:
    """`name{labels} value [timestamp]` -> (labels, value); None where another metric begins alike."""
    follower = line[length : length + 1]
    labels = b""
    if follower == b"{":
        close = line.rfind(b"}")
        if close < 0:
            return None
        labels, rest = line[length + 1 : close], line[close + 1 :]
    elif follower in {b" ", b"\t"}:
        rest = line[length:]
    else:
        return None
    words = rest.split()
    if not words:
        return None
    try:
        return labels, float(words[0])
    except ValueError:
        return None


def _finite(value: float) -> bool:
    return math.isfinite(value)


def _unquoted(body: bytes) -> bytes:
    """Some builds of llama.cpp send the page as one JSON string."""
    if body[:1] != b'"':
        return body
    try:
        text = json.loads(body)
    except ValueError:
        return body
    return text.encode() if isinstance(text, str) else body
