"""`make bench-sessions [QUICK=1]`: sessions on emulated caches beside others' rules; the ring; moves."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from typing import Any, Final

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from bench import report
from bench.policy.traces import SOURCES, MissingTraceError
from bench.servers.folder import open_folder
from bench.sessions import bars, moves, ring
from bench.sessions.runs import FULL, OWN, QUICK, ROUTERS, Size, combine, execute

NAME: Final = "sessions"
KINDS: Final = ("conversations", "agents", "hot")
MOVES: Final = {True: 20, False: 100}

Found = dict[str, dict[str, dict[str, Any]]]


def run(size: Size, console: Console) -> Found:
    """Every router on every workload, interleaved over the processes."""
    wanted = [(kind, name, size, seed) for kind in KINDS for name in ROUTERS for seed in size.seeds]
    runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with (
        ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool,
        Progress(*columns, console=console) as progress,
    ):
        task = progress.add_task("runs", total=len(wanted))
        for (kind, name, _, _), figures in zip(wanted, pool.map(_execute, wanted), strict=True):
            runs.setdefault((kind, name), []).append(figures)
            progress.advance(task)
    return {kind: {name: combine(runs[kind, name]) for name in ROUTERS} for kind in KINDS}


def _execute(wanted: tuple[str, str, Size, int]) -> dict[str, Any]:
    return execute(*wanted)


def show(found: Found, console: Console) -> None:
    """Print the table."""
    columns = (
        "hit_rate",
        "ideal_real_size",
        "ideal_infinite",
        "ttft_p50_ms",
        "ttft_p99_ms",
        "load_over_mean",
    )
    table = Table(title="Sessions on eight emulated A100-80G with Llama-3-8B")
    table.add_column("workload")
    table.add_column("router")
    for column in (*columns, "backends_of_a_session", "failed"):
        table.add_column(column.replace("_", " "), justify="right")
    for kind, by_router in found.items():
        for name, figures in by_router.items():
            cells = [f"{figures[column]:.4g}" for column in columns]
            table.add_row(
                kind,
                f"[bold]{name}[/]" if name == OWN else name,
                *cells,
                f"{figures['backends_of_a_session']:.2f}",
                f"{figures['failed']:g}",
            )
    console.print(table)


def main() -> int:
    """Run the bench."""
    parser = argparse.ArgumentParser(prog="python -m bench.sessions", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="under two minutes, one seed")
    quick: bool = parser.parse_args().quick
    size = QUICK if quick else FULL
    console = report.console()
    try:
        found = run(size, console)
    except MissingTraceError as missing:
        console.print(str(missing))
        console.print(f"The conversations come from {SOURCES['mooncake']}.")
        return 1
    rings = ring.measure()
    with open_folder() as folder:
        moved = moves.measure(folder, MOVES[quick])
    overall = {
        "moved_needlessly": sum(case["moved_needlessly"] for case in rings),
        "share_error_max": max(case["share_error"] for case in rings),
        "move_visible_ms": moved["move_visible_ms_max"],
        "largest_share": {kind: found[kind][OWN]["largest_share"] for kind in KINDS},
    }
    held = bars.of(found, overall)
    cases = [
        {"case": {"workload": kind, "router": name, "requests": figures["requests"]}, **figures}
        for kind, by_router in found.items()
        for name, figures in by_router.items()
    ]
    show(found, console)
    report.show_bars(held, console)
    path = report.write(
        NAME,
        quick=quick,
        seed=size.seeds[0],
        overall=overall,
        cases=[*cases, *rings, moved],
        bars=held,
    )
    console.print(f"written to {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
