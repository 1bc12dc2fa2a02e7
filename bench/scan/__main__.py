"""`make bench-scan [QUICK=1]`: CPU that reading bodies, streams and answers takes, in LuaJIT alone."""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.report import Bar
from bench.scan.inputs import Input, inputs
from tokenweir.luavm import new_runtime

SEEDS = (1, 2, 3)
TIMING = Path(__file__).with_name("timing.lua")

# Microseconds; a body of 2 KB must leave most of the 15 that a request may cost in all to the rest.
LIMITS = {"chat 2 KB prose": 3.0, "chat 220 KB prose": 20.0, "chat events": 1.0, "responses events": 1.0}

Timer = Callable[[Input, int], float]


def timer() -> Timer:
    """Return a function that times an input in one LuaJIT, which compiles as it goes."""
    runtime = new_runtime()
    timing = runtime.execute(TIMING.read_bytes())

    def microseconds(one: Input, rounds: int) -> float:
        pieces = runtime.table(*one.pieces)
        return (
            float(timing.microseconds(one.operation.encode(), one.kind.encode(), pieces, rounds)) / one.units
        )

    return microseconds


def run(rounds: int, target: float) -> list[dict[str, Any]]:
    """Time all cases, interleaved, `rounds` times for each seed; the least of a seed's rounds counts.

    One measurement lasts about `target` seconds.
    """
    microseconds = timer()
    best: dict[tuple[str, int], float] = {}
    facts: dict[str, dict[str, Any]] = {}
    for seed in SEEDS:
        made = inputs(seed)
        repeats = {}
        for one in made:
            microseconds(one, 200)
            repeats[one.name] = max(3, int(target * 1e6 / (microseconds(one, 20) * one.units + 0.01)))
            facts[one.name] = {
                "name": one.name,
                "operation": one.operation,
                "bytes": one.size,
                "units": one.units,
            }
        for _ in range(rounds):
            for one in made:
                key = (one.name, seed)
                best[key] = min(best.get(key, float("inf")), microseconds(one, repeats[one.name]))
    by_name: dict[str, list[float]] = defaultdict(list)
    for (name, _), value in best.items():
        by_name[name].append(value)
    return [
        {
            "case": facts[name],
            "us": round(statistics.median(found), 3),
            "us_least": round(min(found), 3),
            "us_most": round(max(found), 3),
        }
        for name, found in by_name.items()
    ]


def bars(cases: list[dict[str, Any]]) -> list[Bar]:
    """Return what must hold of the cases."""
    found = {case["case"]["name"]: case["us"] for case in cases}
    return [Bar(f"{name}, us", found.get(name), "<=", limit) for name, limit in LIMITS.items()]


def show(cases: list[dict[str, Any]], to: Console) -> None:
    """Print the cases as a table."""
    table = Table(title="CPU of one body, event or answer, median of the seeds")
    table.add_column("case")
    for column in ("bytes", "us", "least", "most"):
        table.add_column(column, justify="right")
    for case in cases:
        size = case["case"]["bytes"] // case["case"]["units"]
        table.add_row(
            case["case"]["name"], f"{size:,}", *(f"{case[k]:.2f}" for k in ("us", "us_least", "us_most"))
        )
    to.print(table)


def main() -> None:
    """Run the bench; missed bars are said, not an exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.scan", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter rounds")
    quick = parser.parse_args().quick
    console = report.console()
    cases = run(3, 0.01) if quick else run(9, 0.05)
    show(cases, console)
    found = bars(cases)
    report.show_bars(found, console)
    path = report.write("scan", quick=quick, seed=SEEDS[0], overall={"seeds": SEEDS}, cases=cases, bars=found)
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
