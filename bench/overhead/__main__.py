"""`make bench-overhead [QUICK=1]`: what a request costs through plain nginx, Tokenweir and other routers."""

from __future__ import annotations

import argparse
import contextlib
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console

from bench import report
from bench.overhead import figures, measure, table
from bench.overhead.bars import bars
from bench.overhead.cases import FULL, KIB, QUICK, Plan, RequestCase
from bench.overhead.streams import StreamSample
from bench.overhead.systems import Systems, start
from bench.overhead.wrk import Sample
from bench.servers import cpu, idle
from bench.servers.folder import open_folder

SEED = 1
WARM_SECONDS = 8
"""For which each system is loaded before anything counts, by requests with a text of their own each second,
and as long by streams: a gateway in service has been running for long, and LuaJIT compiles a way only
after many requests took it."""
WARM_SECONDS_OF_OTHERS = 3
"""The same, by each other kind of body."""
WARM_SEED = 1000
"""Of those texts, none of which is measured with."""


def _case(systems: Systems, name: str, **facts: Any) -> dict[str, Any]:
    return {"system": systems.kind(name), "workers": systems.workers.get(name), **facts}


@dataclass
class Measured:
    """What was measured of the systems, start after start."""

    requests: list[list[dict[str, Sample]]]
    """By case of the plan, then by round."""
    streams: list[dict[str, StreamSample]] = field(default_factory=list)
    cpu_share_beside: list[dict[str, float]] = field(default_factory=list)


def _warm(plan: Plan, systems: Systems, folder: Path) -> None:
    usual = RequestCase(2 * KIB, "prose", 64)
    measure.requests(usual, systems.systems, rounds=WARM_SECONDS, seconds=1, folder=folder, seed=WARM_SEED)
    streams = replace(plan.streams, rounds=WARM_SECONDS, seconds=1)
    measure.event_streams(streams, systems.systems, WARM_SEED)
    others = {(case.size, case.text): case for case in plan.requests if case.size != usual.size}
    for case in others.values():
        rounds = WARM_SECONDS_OF_OTHERS
        measure.requests(case, systems.systems, rounds=rounds, seconds=1, folder=folder, seed=WARM_SEED)


def _measure(plan: Plan, number: int, systems: Systems, folder: Path, into: Measured) -> None:
    """Measure one start of all systems."""
    _warm(plan, systems, folder)
    began = {name: cpu.cpu_seconds(process.pid) for name, process in systems.beside.items()}
    clock = time.monotonic()
    for case, rounds in zip(plan.requests, into.requests, strict=True):
        seed = SEED + number * plan.rounds
        rounds.extend(
            measure.requests(
                case, systems.systems, rounds=plan.rounds, seconds=plan.seconds, folder=folder, seed=seed
            )
        )
    into.streams += measure.event_streams(plan.streams, systems.systems, SEED + number * plan.streams.rounds)
    passed = time.monotonic() - clock
    into.cpu_share_beside.append(
        {
            name: (cpu.cpu_seconds(process.pid) - began[name]) / passed
            for name, process in systems.beside.items()
        }
    )


def _cases(plan: Plan, systems: Systems, measured: Measured, console: Console) -> list[dict[str, Any]]:
    """Show and return the figures of all cases."""
    cases: list[dict[str, Any]] = []
    for case, rounds in zip(plan.requests, measured.requests, strict=True):
        found = []
        for name in rounds[0]:
            numbers = figures.requests(rounds, name, systems.plain_of(name))
            found.append({"case": _case(systems, name, stream=False, **case.facts), **numbers})
        found.sort(key=table.label)
        table.show_requests(f"{case.name}, {len(rounds)} rounds", found, console)
        cases += found
    found = []
    for name in measured.streams[0]:
        facts = _case(systems, name, stream=True, connections=plan.streams.connections)
        found.append({"case": facts, **figures.streams(measured.streams, name, systems.plain_of(name))})
    found.sort(key=table.label)
    title = f"streams, {plan.streams.connections} at once, {len(measured.streams)} rounds"
    table.show_streams(title, found, console)
    return cases + found


def run(plan: Plan, folder: Path, console: Console) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run all cases; return what holds for the whole bench, and the cases."""
    measured = Measured(requests=[[] for _ in plan.requests])
    for number in range(plan.starts):
        console.print(
            f"start {number + 1} of {plan.starts}; each system is loaded for a while before it counts"
        )
        with contextlib.ExitStack() as stack:
            systems = start(folder / f"start-{number}", stack, console.print)
            _measure(plan, number, systems, folder, measured)
            resident = {name: cpu.resident_bytes(system.pid) for name, system in systems.systems.items()}
    overall = {
        "starts": plan.starts,
        "peers": systems.started,
        "cpu_share_beside": {
            name: round(median(each[name] for each in measured.cpu_share_beside), 4)
            for name in systems.beside
        },
        "resident_mib": {name: round(size / 2**20, 1) for name, size in resident.items()},
    }
    return overall, _cases(plan, systems, measured, console)


def main() -> None:
    """Run the bench; missed bars are said, not an exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.overhead", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer bodies, shorter runs")
    quick = parser.parse_args().quick
    console = report.console()
    with open_folder() as folder, idle.awake() as polling:
        if not polling:
            console.print(
                "idle processors sleep, and who wakes one is charged for it: slow systems seem slower. "
                "Root may have them poll, where the kernel can"
            )
        overall, cases = run(QUICK if quick else FULL, folder, console)
        overall["idle_processors_poll"] = polling
    found = bars(cases)
    report.show_bars(found, console)
    path = report.write("overhead", quick=quick, seed=SEED, overall=overall, cases=cases, bars=found)
    picture = table.plot(cases, path.with_suffix(".png"))
    console.print(f"wrote {path} and {picture}")


if __name__ == "__main__":
    main()
