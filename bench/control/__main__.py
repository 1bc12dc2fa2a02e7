"""`make bench-control [QUICK=1]`: how soon the control loop sees, acts, recovers, and what clients notice."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.control.fleet import Fleet
from bench.control.result import common_bars
from bench.control.scenarios import SCENARIOS, Scenario
from bench.control.stage import Setup, Stage
from bench.report import Bar
from bench.servers.folder import open_folder

SEED = 1
SEEDS = 3
COLUMNS = ("detected_s", "acted_s", "recovered_s")
COUNTS = ("requests", "requests_failed", "requests_failed_elsewhere", "requests_refused", "flaps")


async def play(
    scenario: Scenario, fleet: Fleet, folder: Path, seed: int, quick: bool
) -> tuple[dict[str, Any], list[Bar], list[Bar]]:
    """Play one scenario; its case, its bars, and those of which the median of the seeds is told."""
    began = time.monotonic()
    setup = scenario.setup if isinstance(scenario.setup, Setup) else scenario.setup(quick)
    async with Stage(setup, fleet, folder, seed) as stage:
        result = await scenario.run(stage, quick)
        await stage.traffic.stop(20)
        case = result.whole(scenario.name, stage, time.monotonic() - began)
    return case, [*result.bars, *common_bars(scenario.name, case)], result.typical


def run(
    chosen: list[Scenario], quick: bool, seeds: int, folder: Path, console: Console
) -> tuple[list[dict[str, Any]], list[Bar]]:
    """Play the scenarios on one fleet, all of them once for each seed."""
    cases: list[dict[str, Any]] = []
    bars: list[Bar] = []
    typical: list[Bar] = []
    with contextlib.ExitStack() as stack:
        fleet = Fleet(folder, stack)
        for seed in range(SEED, SEED + seeds):
            for number, scenario in enumerate(chosen):
                # No two plays share the ids of their requests.
                own = 100 * seed + number
                fleet.mend()
                case, found, usual = asyncio.run(play(scenario, fleet, folder / f"play-{own}", own, quick))
                case["case"]["seed"] = seed
                cases.append(case)
                bars += found
                typical += usual
                console.print(f"{scenario.name}: {_line(case)}")
    return cases, [*_worst(bars), *_median(typical)]


def _worst(bars: list[Bar]) -> list[Bar]:
    """Each bar once, with its worst value over the seeds."""
    found: dict[str, Bar] = {}
    for bar in bars:
        known = found.get(bar.name)
        if known is None or (known.ok and not bar.ok) or (known.ok == bar.ok and _beyond(bar, known)):
            found[bar.name] = bar
    return list(found.values())


def _median(bars: list[Bar]) -> list[Bar]:
    """Each bar once, with the median of its values over the seeds in which it was measured."""
    found: dict[str, list[Bar]] = {}
    for bar in bars:
        found.setdefault(bar.name, []).append(bar)
    return [_typical(same) for same in found.values()]


def _typical(bars: list[Bar]) -> Bar:
    values = [bar.value for bar in bars if bar.value is not None]
    return replace(bars[0], value=statistics.median(values) if values else None)


def _beyond(bar: Bar, known: Bar) -> bool:
    if bar.value is None or known.value is None:
        return False
    return bar.value < known.value if bar.op == ">=" else bar.value > known.value


def _line(case: dict[str, Any]) -> str:
    times = ", ".join(f"{name[:-2]} {case[name]}" for name in COLUMNS if case[name] is not None)
    return f"{times}; {', '.join(f'{name} {case[name]}' for name in COUNTS)}"


def show(cases: list[dict[str, Any]], to: Console) -> None:
    """Print the cases as a table."""
    table = Table(title="The control loop, times in s")
    for column in ("scenario", *(name[:-2] for name in COLUMNS), *COUNTS):
        table.add_column(column.replace("requests_", ""), justify="left" if column == "scenario" else "right")
    for case in cases:
        times = ["" if case[name] is None else f"{case[name]:.2f}" for name in COLUMNS]
        table.add_row(case["case"]["scenario"], *times, *(str(case[name]) for name in COUNTS))
    to.print(table)


def main() -> None:
    """Run the bench; missed bars are said, not an exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.control", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="each scenario once, shorter")
    parser.add_argument("--only", nargs="+", default=[], help="words that the names of the scenarios hold")
    parser.add_argument("--seeds", type=int, help="how often the chosen scenarios are played")
    options = parser.parse_args()
    if options.seeds and not options.only:
        parser.error("--seeds goes with --only: what is written is of all seeds")
    seeds = options.seeds or (1 if options.quick else SEEDS)
    chosen = [one for one in SCENARIOS if not options.only or any(word in one.name for word in options.only)]
    console = report.console()
    with open_folder() as folder:
        cases, bars = run(chosen, options.quick, seeds, folder, console)
    show(cases, console)
    report.show_bars(bars, console)
    if options.only:
        console.print_json(data=cases)
        console.print("not all scenarios: nothing is written")
        return
    overall = {name: sum(case[name] for case in cases) for name in COUNTS}
    path = report.write("control", quick=options.quick, seed=SEED, overall=overall, cases=cases, bars=bars)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
