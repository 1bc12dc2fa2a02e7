"""`make bench-overhead [QUICK=1]`: what a request costs through plain nginx, Tokenweir and other routers."""

from __future__ import annotations

import argparse
import contextlib
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import report
from bench.overhead import figures, measure, table
from bench.overhead.bars import bars
from bench.overhead.cases import FULL, KIB, QUICK, Plan, RequestCase
from bench.overhead.systems import Systems, start
from bench.servers import cpu
from bench.servers.folder import open_folder

SEED = 1
WARM_SECONDS = 8
"""For which each system is loaded before anything counts, with a text of its own each second: a gateway in
service has been running for long, and LuaJIT compiles a way that requests take only after many took it."""
WARM_SEED = 1000
"""Of those texts, none of which is measured with."""


def _case(systems: Systems, name: str, **facts: Any) -> dict[str, Any]:
    return {"system": systems.kind(name), "workers": systems.workers.get(name), **facts}


def run(plan: Plan, folder: Path, console: Console) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run all cases; return what holds for the whole bench, and the cases."""
    cases: list[dict[str, Any]] = []
    with contextlib.ExitStack() as stack:
        systems = start(folder, stack, console.print)
        warm = RequestCase(2 * KIB, "prose", 64)
        console.print(f"loading each for {WARM_SECONDS} s before anything counts")
        measure.requests(warm, systems.systems, rounds=WARM_SECONDS, seconds=1, folder=folder, seed=WARM_SEED)
        began = {name: cpu.cpu_seconds(process.pid) for name, process in systems.beside.items()}
        clock = time.monotonic()
        for case in plan.requests:
            rounds = measure.requests(
                case, systems.systems, rounds=plan.rounds, seconds=plan.seconds, folder=folder, seed=SEED
            )
            found = []
            for name in rounds[0]:
                numbers = figures.requests(rounds, name, systems.plain_of(name))
                found.append({"case": _case(systems, name, stream=False, **case.facts), **numbers})
            found.sort(key=table.label)
            table.show_requests(f"{case.name}, {plan.rounds} rounds", found, console)
            cases += found
        samples = measure.event_streams(plan.streams, systems.systems, SEED)
        found = []
        for name in samples[0]:
            facts = _case(systems, name, stream=True, connections=plan.streams.connections)
            found.append({"case": facts, **figures.streams(samples, name, systems.plain_of(name))})
        found.sort(key=table.label)
        title = f"streams, {plan.streams.connections} at once, {plan.streams.rounds} rounds"
        table.show_streams(title, found, console)
        cases += found
        passed = time.monotonic() - clock
        overall = {
            "peers": systems.started,
            "cpu_share_beside": {
                name: round((cpu.cpu_seconds(process.pid) - began[name]) / passed, 4)
                for name, process in systems.beside.items()
            },
            "resident_mib": {
                name: round(cpu.resident_bytes(system.pid) / 2**20, 1)
                for name, system in systems.systems.items()
            },
        }
    return overall, cases


def main() -> None:
    """Run the bench; missed bars are said, not an exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer bodies, shorter runs")
    quick = parser.parse_args().quick
    console = report.console()
    with open_folder() as folder:
        overall, cases = run(QUICK if quick else FULL, folder, console)
    found = bars(cases)
    report.show_bars(found, console)
    path = report.write("overhead", quick=quick, seed=SEED, overall=overall, cases=cases, bars=found)
    picture = table.plot(cases, path.with_suffix(".png"))
    console.print(f"wrote {path} and {picture}")


if __name__ == "__main__":
    main()
