"""`make bench-live [QUICK=1]`: Tokenweir and other routers before four emulated servers, driven by aiperf."""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table

from bench import report
from bench.live import figures, fleet, loadgen
from bench.policy import traces
from bench.policy.figures import Objectives
from bench.policy.replay import Replay
from bench.policy.table import shown
from bench.policy.traces import MissingTraceError
from bench.servers.process import StartError

SEED: Final = 2
RATE: Final = 12.0
"""Requests a second of the engines' own time."""
LONGEST: Final = 8000
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
        asked = traces.stretch("azure_conv", 60 if quick else 120, SEED)
    except MissingTraceError as error:
        print(error, file=sys.stderr)
        return 2
    asked = [request for request in asked if request.prompt + request.output <= LONGEST]
    systems = fleet.SYSTEMS[:2] if quick else fleet.SYSTEMS
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="tokenweir-bench-", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        trace = folder / "trace.jsonl"
        loadgen.write_trace(trace, asked, RATE * fleet.SPEED)
        for system in systems:
            cases.append(_run(system, trace, len(asked), folder / system.replace(" ", "-"), console))
    predicted = Replay(asked, fleet.specs(), RATE, SEED, Objectives()).run("predictive, running figures only")
    _show(cases, predicted, console)
    bars = _bars(cases, predicted)
    report.show_bars(bars, console)
    overall = {
        "requests": len(asked),
        "rate": RATE,
        "speed": fleet.SPEED,
        "simulated": {name: predicted[name] for name in ("p50_s", "p99_s", "ttft_p99_s", "good_share")},
    }
    path = report.write("live", quick=quick, seed=SEED, overall=overall, cases=cases, bars=bars)
    console.print(f"{path.relative_to(report.ROOT)}")
    return 0


def _run(system: str, trace: Path, asked: int, folder: Path, console: Console) -> dict[str, Any]:
    case: dict[str, Any] = {"case": {"system": system}}
    console.print(f"{system} (what it needs is installed the first time)")
    folder.mkdir(parents=True)
    folder.chmod(0o755)
    try:
        with fleet.engines(folder) as engines, fleet.system(system, engines, folder / "system") as url:
            answers = loadgen.run(url, fleet.MODEL, trace, folder / "load")
    except StartError as error:
        console.print(f"{system}: {error}", markup=False)
        return case | {"not_run": str(error)[:500]}
    return case | figures.of_answers(answers, asked, fleet.SPEED)


def _show(cases: list[dict[str, Any]], predicted: dict[str, Any], console: Console) -> None:
    table = Table(title="Four emulated servers: 2 x A100 (one dies when full), H100, T4")
    for column in ("system", *(name for name, _ in COLUMNS)):
        table.add_column(column, justify="left" if column == "system" else "right")
    for case in cases:
        if "failed" in case:
            table.add_row(case["case"]["system"], *(shown(case[name], form) for name, form in COLUMNS))
    rows = [(name, predicted.get(name, 0.0), form) for name, form in COLUMNS]
    table.add_row("tokenweir, simulated", *(shown(value, form) for _, value, form in rows))
    console.print(table)


def _bars(cases: list[dict[str, Any]], predicted: dict[str, Any]) -> list[report.Bar]:
    ran = {case["case"]["system"]: case for case in cases if "failed" in case}
    own = ran.get("tokenweir")
    others = [case for name, case in ran.items() if name != "tokenweir"]
    if own is None or not others:
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
