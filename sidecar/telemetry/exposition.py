"""Finds single metrics in a page of the Prometheus text format.

A page of vLLM has 60 KB and some 500 samples, of which a handful are wanted, twice a second, of every
backend. So the page is searched for them as bytes; the format groups the samples of a metric under its `#
TYPE` line.
https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from math import isfinite
from typing import Final, NamedTuple

NEAREST: Final = 24
NEAR_BEFORE, NEAR_AFTER = 256, 2048
"""How far around its last place a metric is looked for first, and then: numbers grow by digits, so it moves
a little."""
MISSES_BELIEVED: Final = 4
"""Searches in vain after which a metric is looked for on every `SEARCH_EVERY`th page only: a search in vain
reads the whole page."""
SEARCH_EVERY: Final = 32

ESCAPE = re.compile(r"\\(.)", re.DOTALL)
BRACE: Final = ord("{")
BLANKS: Final = b" \t"


class Page:
    """One scraped page. `places` is kept by the caller from scrape to scrape: metric name -> last offset."""

    __slots__ = ("body", "places")

    def __init__(self, body: bytes, places: dict[str, int] | None = None) -> None:
        self.body = _unquoted(body)
        self.places = {} if places is None else places

    def samples(self, name: str) -> list[tuple[bytes, float]]:
        """(labels as written between the braces, value) of every sample of `name`; values that are no finite
        number are left out. A counter may be asked for with or without its `_total`."""
        body, needles = self.body, _needles(name)
        group = self._place(name, needles.type_line)
        if group >= 0:
            at = body.find(b"\n", group) + 1
            return _grouped(body, at, needles.key) if at > 0 else []
        at = _first_line(body, needles.key)
        return _scattered(body, at, needles.key) if at >= 0 else []

    def _only(self, name: str) -> float | None:
        """The value of a metric of a single sample, which most are; None of others."""
        body, needles = self.body, _needles(name)
        group = self._place(name, needles.type_line)
        at = body.find(b"\n", group) + 1 if group >= 0 else 0
        end = body.find(b"\n", at)
        if (
            at == 0
            or end < 0
            or not body.startswith(needles.key, at)
            or body.startswith(needles.key, end + 1)
        ):
            return None
        return _value(body, at + len(needles.key), end)

    def total(self, name: str) -> float | None:
        """Sum over all label sets, or None where the page has no such metric."""
        only = self._only(name)
        if only is not None:
            return only
        found = self.samples(name)
        return sum(value for _, value in found) if found else None

    def mean(self, name: str) -> float | None:
        """Mean over all label sets, or None."""
        only = self._only(name)
        if only is not None:
            return only
        found = self.samples(name)
        return sum(value for _, value in found) / len(found) if found else None

    def histogram(self, name: str, having: bytes = b"") -> tuple[float, float] | None:
        """(sum, count) of a histogram or summary over all label sets (those in which `having` stands), or
        None. Sum and count of a label set are neighbours; between those of two sets are buckets."""
        body, needles = self.body, _needles(name)
        count_line, sum_line = needles.count_line, needles.sum_line
        at = self._place(name, count_line)
        if at < 0:
            return None
        only = _only_pair(body, at, count_line, sum_line) if not having else None
        if only is not None:
            return only
        group_end = body.find(b"\n#", at + 1)
        group_end = len(body) if group_end < 0 else group_end
        total, count, any_found = 0.0, 0.0, False
        while at >= 0:
            end = body.find(b"\n", at + 1)
            end = len(body) if end < 0 else end
            counted = _sample(body, at + len(count_line), end)
            if counted is not None and having in counted[0]:
                before = end if body.startswith(sum_line, end) else body.rfind(b"\n", 0, at)
                after = body.find(b"\n", before + 1)
                summed = (
                    _sample(body, before + len(sum_line), after if after >= 0 else len(body))
                    if body.startswith(sum_line, before)
                    else None
                )
                if summed is not None and isfinite(summed[1]) and isfinite(counted[1]):
                    total, count, any_found = total + summed[1], count + counted[1], True
            at = body.find(count_line, end, group_end)
        return (total, count) if any_found else None

    def buckets(self, name: str) -> dict[float, float] | None:
        """Upper bound -> observations up to it, over all label sets, or None. The last bound is infinite."""
        body, needle = self.body, f"\n{name}_bucket".encode()
        found: dict[float, float] = {}
        at = self._place(f"{name}_bucket", needle)
        group_end = body.find(b"\n#", at + 1)
        group_end = len(body) if group_end < 0 else group_end
        while at >= 0:
            end = body.find(b"\n", at + 1)
            end = len(body) if end < 0 else end
            sample = _sample(body, at + len(needle), end)
            bound = _bound(sample[0]) if sample is not None else None
            if sample is not None and bound is not None and isfinite(sample[1]):
                found[bound] = found.get(bound, 0) + sample[1]
            at = end if body.startswith(needle, end) else body.find(needle, end, group_end)
        return found or None

    def _place(self, name: str, needle: bytes) -> int:
        """Offset of `needle`, looked for near its last place first, or -1."""
        body, places = self.body, self.places
        last = places.get(name, 0)
        if last > 0:
            at = body.find(needle, last - NEAREST if last > NEAREST else 0, last + len(needle) + NEAREST)
            if at < 0:
                at = body.find(needle, last - NEAR_BEFORE if last > NEAR_BEFORE else 0, last + NEAR_AFTER)
            if at >= 0:
                places[name] = at
                return at
        elif last <= -MISSES_BELIEVED and last % SEARCH_EVERY:
            places[name] = last - 1
            return -1
        at = body.find(needle)
        places[name] = at if at > 0 else (min(last, 0) - 1 if at < 0 else 0)
        return at


class Needles(NamedTuple):
    """What is searched for to find a metric."""

    key: bytes
    type_line: bytes
    count_line: bytes
    sum_line: bytes


@lru_cache(1024)
def _needles(name: str) -> Needles:
    return Needles(
        name.encode(), f"# TYPE {name} ".encode(), f"\n{name}_count".encode(), f"\n{name}_sum".encode()
    )


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


def _grouped(body: bytes, at: int, key: bytes) -> list[tuple[bytes, float]]:
    """The samples of the group whose lines begin at `at`."""
    end = body.find(b"\n#", at - 1)
    if end < at:
        # `# HELP` after `# TYPE`, or nothing follows.
        return _scattered(body, at, key)
    found: list[tuple[bytes, float]] = []
    start = len(key) + 1
    for line in body[at:end].split(b"\n"):
        if not line.startswith(key):
            break
        labels, _, text = line[start:].rpartition(b"} ")
        sample = _quick(line, start, labels, text) or _sample(line, start - 1, len(line))
        if sample is None:
            if found:
                break
        elif isfinite(sample[1]):
            found.append(sample)
    return found


def _quick(line: bytes, start: int, labels: bytes, text: bytes) -> tuple[bytes, float] | None:
    """A sample with labels and without a time; None of others."""
    if not labels or line[start - 1] != BRACE:
        return None
    try:
        return labels, float(text)
    except ValueError:
        return None


def _scattered(body: bytes, at: int, key: bytes) -> list[tuple[bytes, float]]:
    """The samples from a line on, on a page whose groups do not show where they end."""
    found: list[tuple[bytes, float]] = []
    while at < len(body):
        end = body.find(b"\n", at)
        end = len(body) if end < 0 else end
        if body.startswith(key, at):
            sample = _sample(body, at + len(key), end)
            if sample is not None:
                found.append(sample)
            elif found:
                break
        elif found or not body.startswith(b"# HELP ", at):
            break
        at = end + 1
    return [sample for sample in found if isfinite(sample[1])]


def _only_pair(body: bytes, at: int, count_line: bytes, sum_line: bytes) -> tuple[float, float] | None:
    """(sum, count) of a histogram of a single label set whose sum follows its count, as most have it; None of
    others. `at`: the end of the line before the count."""
    middle = body.find(b"\n", at + 1)
    if middle < 0 or not body.startswith(sum_line, middle):
        return None
    end = body.find(b"\n", middle + 1)
    if end < 0 or body[end + 1 : end + 2] != b"#":
        return None
    count = _value(body, at + len(count_line), middle)
    total = _value(body, middle + len(sum_line), end)
    return None if count is None or total is None else (total, count)


def _value(body: bytes, at: int, end: int) -> float | None:
    """The value of a sample whose name ends at `at`; None where `_sample` must look closer."""
    if body[at] == BRACE:
        at = body.rfind(b"}", at, end) + 1
        if at == 0:
            return None
    elif body[at] not in BLANKS:
        return None
    try:
        value = float(body[at:end])
    except ValueError:
        return None
    return value if isfinite(value) else None


def _sample(body: bytes, at: int, end: int) -> tuple[bytes, float] | None:
    """What follows a name from `at` on, `{labels} value [timestamp]` -> (labels, value); None where the name
    goes on: another metric begins alike."""
    follower = body[at] if at < end else 0
    labels = b""
    if follower == BRACE:
        close = body.rfind(b"}", at, end)
        if close < 0:
            return None
        labels = body[at + 1 : close]
        at = close + 1
    elif follower not in BLANKS:
        return None
    text = body[at:end]
    try:
        return labels, float(text)
    except ValueError:
        words = text.split()
        if len(words) < 2:
            return None
    try:
        return labels, float(words[0])
    except ValueError:
        return None


def _bound(labels: bytes) -> float | None:
    """The value of the label `le`."""
    at = labels.find(b',le="') + 5
    if at < 5:
        return _number(label(labels, "le"))
    try:
        return float(labels[at : labels.find(b'"', at)])
    except ValueError:
        return None


def _number(text: str | None) -> float | None:
    try:
        return None if text is None else float(text)
    except ValueError:
        return None


def _unquoted(body: bytes) -> bytes:
    """Some builds of llama.cpp send the page as one JSON string."""
    if body[:1] != b'"':
        return body
    try:
        text = json.loads(body)
    except (ValueError, RecursionError):
        return body
    return text.encode() if isinstance(text, str) else body
