"""The faults bench as a table and as a picture."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from rich.console import Console
from rich.table import Table

from bench.faults.client import Outcome, Record
from bench.faults.stage import Stage

matplotlib.use("Agg")
from matplotlib import pyplot

_COLUMNS = (
    "requests",
    "answered",
    "left",
    "lost",
    "executed_twice",
    "frozen_ejected_s",
    "upstream_closed_ms_p99",
    "excused",
)


def show(overall: Mapping[str, Any], cases: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print a line per round and one for the whole; then the first requests that were lost."""
    table = Table()
    table.add_column("round")
    for name in _COLUMNS:
        table.add_column(name.replace("_", " "), justify="right")
    for title, row in [*((f"seed {case['case']['seed']}", case) for case in cases), ("all", overall)]:
        excused = ", ".join(f"{count} {why}" for why, count in row["excused"].items())
        table.add_row(title, *(str(row[name]) for name in _COLUMNS[:-1]), excused)
    console.print(table)
    for lost in overall["lost_examples"]:
        console.print(
            f"lost: {lost['id']} at {lost['second']} s after {lost['took_s']} s: {lost['outcome']} "
            f"{lost['status']} {lost['backend']} {lost['detail'][:160]}",
            markup=False,
        )


def plot(records: Sequence[Record], stage: Stage, path: Path) -> Path:
    """Draw what clients got per second over the run, with the faults as lines; return `path`."""
    kinds = {
        "answered": (Outcome.OK, "tab:green"),
        "left by the client": (Outcome.LEFT, "tab:gray"),
        "failed": (None, "tab:red"),
    }
    last = max((record.ended for record in records), default=stage.began) - stage.began
    seconds = list(range(math.ceil(last) + 1))
    figure, axis = pyplot.subplots(figsize=(12, 4))
    bottom = [0] * len(seconds)
    for label, (outcome, color) in kinds.items():
        counts = [0] * len(seconds)
        for record in records:
            mine = record.outcome is outcome
            other = outcome is None and record.outcome not in {Outcome.OK, Outcome.LEFT}
            if mine or other:
                counts[int(record.ended - stage.began)] += 1
        axis.bar(seconds, counts, width=1, bottom=bottom, label=label, color=color)
        bottom = [low + count for low, count in zip(bottom, counts, strict=True)]
    for line in stage.done:
        second, _, what = line.partition(" s: ")
        axis.axvline(float(second), color="black", linewidth=0.5, alpha=0.5)
        axis.text(float(second), axis.get_ylim()[1], what, rotation=60, fontsize=6, ha="left", va="bottom")
    axis.set_xlabel("seconds")
    axis.set_ylabel("requests that ended")
    axis.legend(loc="lower right", fontsize=7)
    figure.savefig(path, dpi=120, bbox_inches="tight")
    pyplot.close(figure)
    return path
