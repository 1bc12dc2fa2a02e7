"""Prometheus histograms and the text form of samples."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence


def labels_text(labels: Mapping[str, str]) -> str:
    """`{a="x",b="y"}` with escapes, empty without labels."""
    if not labels:
        return ""
    escaped = (
        (key, value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n"))
        for key, value in labels.items()
    )
    return "{" + ",".join(f'{key}="{value}"' for key, value in escaped) + "}"


def family(
    name: str, kind: str, text: str, samples: Iterable[tuple[Mapping[str, str], float]]
) -> Iterable[str]:
    """The lines of one counter or gauge."""
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in samples:
        yield f"{name}{labels_text(labels)} {value!r}"


class Histogram:
    """Counts of values up to each bound. Values may be observed many at a time."""

    def __init__(self, name: str, text: str, bounds: Sequence[float]) -> None:
        self.name, self.text = name, text
        self.bounds = list(bounds)
        self.counts = [0] * (len(bounds) + 1)
        self.sum, self.count = 0.0, 0

    def observe(self, value: float, times: int = 1) -> None:
        """Add a value `times` times."""
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times
        self.count += times

    def lines(self, labels: Mapping[str, str]) -> Iterable[str]:
        """The exposition."""
        yield f"# HELP {self.name} {self.text}"
        yield f"# TYPE {self.name} histogram"
        total = 0
        for bound, count in zip([*map(str, map(float, self.bounds)), "+Inf"], self.counts, strict=True):
            total += count
            yield f"{self.name}_bucket{labels_text({**labels, 'le': bound})} {total}"
        yield f"{self.name}_sum{labels_text(labels)} {self.sum!r}"
        yield f"{self.name}_count{labels_text(labels)} {self.count}"
