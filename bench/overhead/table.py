"""The overhead bench's cases as tables and as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from rich.console import Console
from rich.table import Table

matplotlib.use("Agg")
from matplotlib import pyplot

Case = Mapping[str, Any]

_REQUESTS = (
    ("req/s", "requests_per_s", "{:,.0f}"),
    ("p50 us", "p50_us", "{:,.0f}"),
    ("p99 us", "p99_us", "{:,.0f}"),
    ("CPU us", "cpu_us", "{:.1f}"),
    ("req/s of plain", "throughput_vs_plain", "{:.2f}"),
    ("p50 added", "p50_added_us", "{:+,.0f}"),
    ("CPU added", "cpu_us_added", "{:+.1f}"),
    ("CPU of vllm-router", "cpu_vs_vllm_router", "{:.2f}"),
    ("errors", "errors", "{}"),
)
_STREAMS = (
    ("streams", "streams", "{:,}"),
    ("first byte p50 ms", "first_byte_ms_p50", "{:.2f}"),
    ("p99", "first_byte_ms_p99", "{:.2f}"),
    ("added p50", "first_byte_added_ms_p50", "{:+.2f}"),
    ("added p99", "first_byte_added_ms_p99", "{:+.2f}"),
    ("gap p99 ms", "gap_ms_p99", "{:.2f}"),
    ("gap of plain", "gap_vs_plain", "{:.3f}"),
    ("CPU us/event", "cpu_us_per_event", "{:.1f}"),
    ("broken", "errors", "{}"),
)


def label(case: Case) -> str:
    """Return a system's name with its workers."""
    workers = case["case"].get("workers")
    return str(case["case"]["system"]) + (f", {workers} worker{'s' * (workers > 1)}" if workers else "")


def _show(
    title: str, cases: Sequence[Case], columns: Sequence[tuple[str, str, str]], console: Console
) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("system")
    for heading, _, _ in columns:
        table.add_column(heading, justify="right")
    for case in cases:
        cells = []
        for _, figure, shape in columns:
            value = case.get(figure)
            spread = case.get(f"{figure}_spread")
            text = "" if value is None else shape.format(value)
            if text and spread and figure in {"cpu_us_added", "throughput_vs_plain", "cpu_vs_vllm_router"}:
                text += f" [dim]({shape.format(spread[0])}..{shape.format(spread[1])})[/]"
            cells.append(text)
        table.add_row(label(case), *cells)
    console.print(table)


def show_requests(title: str, cases: Sequence[Case], console: Console) -> None:
    """Print one case of fixed answers, a line per system."""
    _show(title, cases, _REQUESTS, console)


def show_streams(title: str, cases: Sequence[Case], console: Console) -> None:
    """Print the case of streams, a line per system."""
    _show(title, cases, _STREAMS, console)


def plot(cases: Sequence[Case], path: Path) -> Path:
    """Draw CPU per request by body at 64 connections, with the spread over the rounds; return `path`."""
    loaded = [case for case in cases if not case["case"]["stream"] and case["case"]["connections"] == 64]
    bodies = list(dict.fromkeys((case["case"]["body_kb"], case["case"]["text"]) for case in loaded))
    labels = list(dict.fromkeys(label(case) for case in loaded))
    figure, axes = pyplot.subplots(1, len(bodies), figsize=(3.2 * len(bodies), 4), squeeze=False)
    for axis, (size, text) in zip(axes[0], bodies, strict=True):
        here = {
            label(case): case
            for case in loaded
            if (case["case"]["body_kb"], case["case"]["text"]) == (size, text)
        }
        for place, name in enumerate(labels):
            if name in here:
                value = here[name]["cpu_us"]
                low, high = here[name]["cpu_us_spread"]
                color = "tab:green" if name.startswith("tokenweir") else "tab:gray"
                axis.bar(place, value, yerr=[[value - low], [high - value]], color=color, capsize=3)
        axis.set_xticks(range(len(labels)), labels, rotation=60, ha="right", fontsize=7)
        axis.set_title(f"{size} KB of {text}", fontsize=9)
    axes[0][0].set_ylabel("CPU per request, us")
    figure.tight_layout()
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    return path
