"""`make bench-scale [QUICK=1]`: the gateway and the sidecar with 1,000 backends and 100,000 sessions."""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.report import Bar
from bench.scale import fleet, tick, worker
from bench.servers.folder import open_folder

SEEDS = (1, 2, 3)
SIZES = (100, 1000)
MOST = SIZES[-1]


def run(quick: bool, folder: Path, console: Console) -> list[dict[str, Any]]:
    """All sizes, once for each seed."""
    measured: dict[int, list[dict[str, Any]]] = {size: [] for size in SIZES}
    for seed in SEEDS[: 1 if quick else None]:
        for size in SIZES:
            console.print(f"{size} backends, seed {seed}")
            figures = tick.measure(size, seed, 20 if quick else 60)
            with worker.running(folder / f"{size}-{seed}", fleet.backends(size, seed)) as (server, _):
                figures |= worker.measure(server, quick)
            measured[size].append(figures)
    return [
        {
            "case": {"backends": size, "sessions": 100_000},
            **{name: statistics.median(one[name] for one in found) for name in found[0]},
            "pick_us_p99_most": max(one["pick_us_p99"] for one in found),
            "tick_ms_p99_most": max(one["tick_ms_p99"] for one in found),
        }
        for size, found in measured.items()
    ]


def bars(cases: list[dict[str, Any]]) -> list[Bar]:
    """What must hold of the largest fleet."""
    case = cases[-1]
    return [
        Bar("pick and reserve at p99, us of CPU", case["pick_us_p99"], "<=", 40),
        Bar("apply a snapshot, ms of CPU", case["apply_ms_p50"], "<=", 20),
        Bar("longest that it holds a worker up at a time, ms of CPU", case["stall_ms_most"], "<=", 20),
        Bar("tick at p99, ms of CPU", case["tick_ms_p99"], "<=", 250),
        Bar("sessions remembered, of 100,000", case["sessions_known"], ">=", 99_900),
        Bar("memory for the sessions, MB", case["sessions_bytes"] / 1e6, "<=", 16),
    ]


def show(cases: list[dict[str, Any]], to: Console) -> None:
    """Print the cases as a table."""
    table = Table(title="Median of the seeds; CPU time, but for what is named clock or late")
    table.add_column("figure")
    for case in cases:
        table.add_column(f"{case['case']['backends']} backends", justify="right")
    for name in cases[0]:
        if name != "case":
            table.add_row(name, *(f"{case[name]:,.2f}" for case in cases))
    to.print(table)


def main() -> None:
    """Run the bench; missed bars are said, not an exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.scale", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one seed, shorter")
    quick = parser.parse_args().quick
    console = report.console()
    with open_folder() as folder:
        cases = run(quick, folder, console)
    show(cases, console)
    found = bars(cases)
    report.show_bars(found, console)
    path = report.write("scale", quick=quick, seed=SEEDS[0], overall={}, cases=cases, bars=found)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
