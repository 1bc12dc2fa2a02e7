"""`make bench-buffer [QUICK=1]`: the elastic buffer under overload."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.buffer import fleet as fleets
from bench.buffer import single
from bench.buffer.figures import bars, mean, of_run
from bench.buffer.overload import FULL, QUICK, Load, run
from bench.servers.folder import open_folder

SEEDS = (1, 2, 3)
MAX_WAIT, MAX_WAIT_QUICK = "15s", "4s"
"""Short enough for the queue to fill up early in a run."""
WARM_UP = Load(8, 6, 0)
WAITERS, WAITERS_QUICK = 10_000, 2_000


async def _single(folder: Path, quick: bool, console: Console) -> dict[str, dict[str, Any]]:
    found = {}
    for name, case, count in (
        ("order", single.order, 150 if quick else 500),
        ("memory", single.memory, WAITERS_QUICK if quick else WAITERS),
        ("reload", single.reload, 60 if quick else 400),
    ):
        console.print(f"one scripted backend: {name}, {count} requests")
        found[name] = await case(folder / name, count)
    return found


async def _overload(
    folder: Path, load: Load, max_wait: str, seeds: tuple[int, ...], console: Console
) -> dict[str, list[dict[str, Any]]]:
    """Figures by what was run; the cases are interleaved, seed by seed."""
    found: dict[str, list[dict[str, Any]]] = {}
    alone = replace(load, flood=0)
    queue = {**fleets.QUEUE, "max_wait": max_wait}
    plans: list[tuple[str, Load, dict[str, Any]]] = [
        ("fair", load, {"queue": queue}),
        ("without the flood", alone, {"queue": queue}),
        ("fifo", load, {"queue": {**queue, "order": "fifo"}}),
    ]
    with contextlib.ExitStack() as stack:
        fleet = await asyncio.to_thread(fleets.start, folder, stack)
        await run(fleet, WARM_UP, 0, "warm-up")
        for seed in seeds:
            for name, offered, sections in plans:
                console.print(f"overload: {name}, seed {seed}, {offered.seconds:.0f} s")
                await fleet.change(**fleets.BREAKER_OFF, **sections)
                done = await run(fleet, offered, seed, f"{name.split()[0]}-{seed}")
                found.setdefault(name, []).append({"case": {"run": name, "seed": seed}, **of_run(done)})
        console.print("overload: fair, breaker on")
        await fleet.change(breaker={}, burst={}, queue=queue)
        done = await run(fleet, load, seeds[0], "breaker")
        found["breaker on"] = [{"case": {"run": "breaker on", "seed": seeds[0]}, **of_run(done)}]
    return found


def _overall(one: dict[str, dict[str, Any]], many: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    fair, alone, fifo = many["fair"], many["without the flood"], many["fifo"]

    def ratio(name: str, above: list[dict[str, Any]], below: list[dict[str, Any]]) -> float:
        ratios = [float(a[name]) / float(b[name]) for a, b in zip(above, below, strict=True)]
        return round(fmean(ratios), 3)

    overall = {
        "inversions": one["order"]["inversions"],
        "neighbours": one["order"]["neighbours"],
        "wake_ms_p99": one["order"]["wake_ms_p99"],
        "bytes_per_waiter": one["memory"]["bytes_per_waiter"],
        "lost_on_reload": one["reload"]["lost_on_reload"],
        "starved": sum(case["starved"] for case in fair),
        "flood_effect": ratio("others_latency_p99", fair, alone),
        "latency_against_fifo": ratio("latency_mean", fair, fifo),
        "hints_most": max(case["hints_most"] for case in fair),
    }
    names = ["overload", "eta_median_error", "eta_within_2x", "latency_mean", "others_refused"]
    names += ["requests", "refused", "refused_at_once"]
    names += [f"wait_{q}_{name}" for name in ("high", "normal", "low") for q in ("p50", "p99")]
    return overall | {name: mean(fair, name) for name in names}


def _show(cases: list[dict[str, Any]], console: Console) -> None:
    table = Table(title="Overload on the emulated fleet (waits and latencies in s; flood apart)")
    columns = {
        "overload": "overload",
        "served": "served",
        "refused": "refused",
        "latency_mean": "mean latency",
        "others_latency_p99": "others p99",
        "wait_p50_high": "high p50",
        "wait_p99_high": "high p99",
        "wait_p50_normal": "normal p50",
        "wait_p99_normal": "normal p99",
        "wait_p50_low": "low p50",
        "wait_p99_low": "low p99",
        "flood_wait_p50": "flood p50",
        "eta_median_error": "eta error",
        "eta_within_2x": "eta 2x",
    }
    table.add_column("run")
    for title in columns.values():
        table.add_column(title, justify="right")
    for case in cases:
        if "overload" in case:
            figures = ("-" if case[name] is None else f"{case[name]:g}" for name in columns)
            table.add_row(f"{case['case']['run']} {case['case']['seed']}", *figures)
    console.print(table)


async def measure(quick: bool, folder: Path, console: Console) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run everything; returns the overall figures and the cases."""
    one = await _single(folder, quick, console)
    load, max_wait, seeds = (QUICK, MAX_WAIT_QUICK, SEEDS[:1]) if quick else (FULL, MAX_WAIT, SEEDS)
    (folder / "fleet").mkdir()
    (folder / "fleet").chmod(0o755)
    many = await _overload(folder / "fleet", load, max_wait, seeds, console)
    cases = [{"case": {"run": name}, **figures} for name, figures in one.items()]
    cases += [case for listed in many.values() for case in listed]
    return _overall(one, many), cases


def main() -> None:
    """Run the bench; missed bars are said, not an exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.buffer", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="short runs of one seed")
    quick = parser.parse_args().quick
    console = report.console()
    with open_folder() as folder:
        overall, cases = asyncio.run(measure(quick, folder, console))
    _show(cases, console)
    found = bars(overall)
    report.show_bars(found, console)
    path = report.write("buffer", quick=quick, seed=SEEDS[0], overall=overall, cases=cases, bars=found)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
