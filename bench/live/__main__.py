"""`make bench-live [QUICK=1]`: Tokenweir and other routers, driven by aiperf, before four emulated servers
and before three real llama.cpp engines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench import report
from bench.live import figures, fleet, loadgen, prompts, simulated
from bench.policy import traces
from bench.policy.table import shown
from bench.policy.traces import Asked, MissingTraceError
from bench.servers.folder import open_folder
from bench.servers.llama import MODEL as SMALL_MODEL
from bench.servers.process import StartError

SEED: Final = 2
RATE: Final = 12.0
"""Requests a second of the engines' own time."""
REQUESTS: Final = 300
"""So many that the slowest one in a hundred is more than one request's chance."""
QUICK_REQUESTS: Final = 60
REAL_REQUESTS: Final = 40
QUICK_REAL_REQUESTS: Final = 20
LONGEST: Final = 8000
REAL_RATE: Final = 0.5
"""Requests a second to the real engines: what two cores can do with their clients beside them."""
REAL_SCALE: Final = 8
"""The trace's lengths are divided by this for them: a CPU is not a GPU."""
REAL_LONGEST: Final = 360
EMULATED, REAL = "emulated", "real"
EMULATED_TITLE: Final = "Four emulated servers: 2 x A100 (one dies when full), H100, T4"
REAL_TITLE: Final = "Three real llama.cpp engines, which fail when full, on the cores of their clients"
OWN: Final = "tokenweir"
COLUMNS: Final = (
    ("failed", "{:.0f}"),
    ("good_share", "{:.1%}"),
    ("p50_s", "{:.2f}"),
    ("p99_s", "{:.2f}"),
    ("ttft_p50_s", "{:.2f}"),
    ("ttft_p99_s", "{:.2f}"),
)


def main() -> int:
    """Run the bench; missed bars are said, not an exit status. 2 when the traces are not at hand."""
    parser = argparse.ArgumentParser(prog="python -m bench.live", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer requests, Tokenweir and nginx only")
    quick = parser.parse_args().quick
    console = report.console()
    try:
        asked = traces.stretch("azure_conv", QUICK_REQUESTS if quick else REQUESTS, SEED)
    except MissingTraceError as error:
        print(error, file=sys.stderr)
        return 2
    asked = [request for request in asked if request.prompt + request.output <= LONGEST]
    small = _scaled(asked[: QUICK_REAL_REQUESTS if quick else REAL_REQUESTS])
    systems = fleet.SYSTEMS[:2] if quick else fleet.SYSTEMS
    with open_folder() as folder:
        chats = loadgen.written(prompts.chats(asked, SEED))
        emulated = _Load(EMULATED, asked, chats, fleet.MODEL, RATE, fleet.SPEED, folder, console)
        real = _Load(REAL, small, loadgen.ordered(small), SMALL_MODEL, REAL_RATE, 1.0, folder, console)
        for load in (emulated, real):
            for system in systems:
                load.run(system)
    predicted = simulated.predicted(emulated.answers, fleet.specs(), fleet.SPEED)
    _show(EMULATED_TITLE, emulated.cases, predicted, console)
    _show(REAL_TITLE, real.cases, None, console)
    bars = _bars(emulated.cases, predicted) + _real_bars(real.cases)
    report.show_bars(bars, console)
    overall = {
        "requests": len(asked),
        "rate": RATE,
        "speed": fleet.SPEED,
        "real_requests": len(small),
        "real_rate": REAL_RATE,
        "simulated": predicted,
    }
    path = report.write(
        "live", quick=quick, seed=SEED, overall=overall, cases=emulated.cases + real.cases, bars=bars
    )
    console.print(f"{path.relative_to(report.ROOT)}")
    return 0


def _scaled(asked: Sequence[Asked]) -> list[Asked]:
    """The same for small engines."""
    found = []
    for request in asked:
        prompt, output = max(8, request.prompt // REAL_SCALE), max(4, request.output // REAL_SCALE)
        if prompt + output <= REAL_LONGEST:
            found.append(Asked(request.at, prompt, output))
    return found


@dataclass
class _Load:
    """One stretch of traffic, sent through one system after the other to the same engines."""

    engines: str
    asked: Sequence[Asked]
    requests: Sequence[dict[str, Any]]
    """What is sent at each time of `asked`, as aiperf takes it."""
    model: str
    rate: float
    speed: float
    folder: Path
    console: Console
    cases: list[dict[str, Any]] = field(default_factory=list)
    answers: list[loadgen.Answer] = field(default_factory=list)
    """Those of Tokenweir."""

    def run(self, system: str) -> None:
        """Put one system before the engines."""
        case: dict[str, Any] = {"case": {"system": system, "engines": self.engines}}
        self.cases.append(case)
        trace = self.folder / f"{self.engines}.jsonl"
        loadgen.write_trace(trace, self.asked, self.requests, self.rate * self.speed)
        self.console.print(f"{self.engines}: {system} (what it needs is installed the first time)")
        folder = self.folder / f"{self.engines}-{system.replace(' ', '-')}"
        folder.mkdir()
        folder.chmod(0o755)
        begin = fleet.engines if self.engines == EMULATED else fleet.real_engines
        try:
            with begin(folder) as engines, fleet.system(system, engines, folder / "system") as url:
                answers = loadgen.run(
                    url, self.model, trace, folder / "load", orders_lengths=self.engines == REAL
                )
        except StartError as error:
            self.console.print(f"{system}: {error}", markup=False)
            case["not_run"] = str(error)[:500]
            return
        case.update(figures.of_answers(answers, len(self.asked), self.speed))
        if system == OWN:
            self.answers = answers


def _show(
    title: str, cases: list[dict[str, Any]], predicted: dict[str, Any] | None, console: Console
) -> None:
    table = Table(title=title)
    for column in ("system", *(name for name, _ in COLUMNS)):
        table.add_column(column, justify="left" if column == "system" else "right")
    for case in cases:
        if "failed" in case:
            table.add_row(case["case"]["system"], *(shown(case[name], form) for name, form in COLUMNS))
    if predicted is not None:
        rows = [(name, predicted.get(name, 0.0), form) for name, form in COLUMNS]
        table.add_row("tokenweir, simulated", *(shown(value, form) for _, value, form in rows))
    console.print(table)


def _ran(cases: list[dict[str, Any]]) -> tuple[dict[str, Any] | None, list[dict[str, Any]]]:
    """The case of Tokenweir, and those of the others that ran."""
    ran = {case["case"]["system"]: case for case in cases if "failed" in case}
    return ran.get(OWN), [case for name, case in ran.items() if name != OWN]


def _real_bars(cases: list[dict[str, Any]]) -> list[report.Bar]:
    """Three engines on two cores are not independent, so only failures count."""
    own, others = _ran(cases)
    if own is None or not others:
        return []
    fewest = min(case["failed"] for case in others)
    return [
        report.Bar("real engines: failed on Tokenweir", own["failed"], "==", 0),
        report.Bar("real engines: failed, beyond the best other's", own["failed"] - fewest, "<=", 0),
    ]


def _bars(cases: list[dict[str, Any]], predicted: dict[str, Any] | None) -> list[report.Bar]:
    own, others = _ran(cases)
    if own is None or not others or predicted is None:
        return []
    best_p99, best_good = min(case["p99_s"] for case in others), max(case["good_share"] for case in others)
    return [
        report.Bar("failed on Tokenweir", own["failed"], "==", 0),
        report.Bar("p99 / best other's", own["p99_s"] / best_p99, "<=", 1),
        report.Bar("goodput / best other's", own["good_share"] / max(best_good, 1e-9), ">=", 1),
        report.Bar("simulated p50 off by", abs(predicted["p50_s"] / own["p50_s"] - 1), "<=", 0.2),
        report.Bar("simulated p99 off by", abs(predicted["p99_s"] / own["p99_s"] - 1), "<=", 0.2),
    ]


if __name__ == "__main__":
    sys.exit(main())
