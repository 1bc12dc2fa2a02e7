"""`make bench-policy [QUICK=1]`: every policy in every cell of `scenarios.yaml`, and the article's table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from math import inf
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from bench import report
from bench.policy import article, bars, plot, scenarios, table
from bench.policy.figures import combine
from bench.policy.policies import ALL
from bench.policy.runs import Run, execute
from bench.policy.sustained import Series, highest
from bench.policy.traces import SOURCES, MissingTraceError

NAME = "policy"
QUICK_REQUESTS = 600
QUICK_CELLS = ("conv-tight-crash", "conv-tight-preempt", "code-8b-preempt", "mix-mixed-fleet")
QUICK_POLICIES = (
    "predictive",
    "predictive, running figures only",
    "predictive, permuted predictions",
    "clairvoyant",
    "round_robin",
    "nginx_least_conn",
    "least_outstanding",
    "least_outstanding_hold",
    "dynamo",
)
MIXED, MIXED_RATES = "mix-mixed-fleet", (14, 18, 22, 26, 30, 34, 38)
SHARE_OF_SUSTAINED = 0.8
COMMON = "conv-64"

Cells = dict[str, dict[str, dict[str, Any]]]


def run_cells(rows: dict[str, list[str]], series: Series, console: Console) -> Cells:
    """The policies of each cell, spread over the processes."""
    runs = [
        Run(name, policy, seed, count=series.count)
        for name, policies in rows.items()
        for policy in policies
        for seed in series.seeds
    ]
    found: dict[tuple[str, str], list[dict[str, Any]]] = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console) as progress:
        task = progress.add_task("cells", total=len(runs))
        for run, figures in zip(runs, series.pool.map(execute, runs, chunksize=2), strict=True):
            found.setdefault((run.cell, run.policy), []).append(figures)
            progress.advance(task)
    return {
        name: {policy: combine(found[name, policy]) for policy in policies} for name, policies in rows.items()
    }


def coarse_steps(series: Series) -> dict[str, Any]:
    """One common case with streams brought up to date at every decision, and in the steps of large fleets."""
    runs = [
        Run(COMMON, bars.OWN, seed, count=series.count, step_ms=step)
        for step in (0.0, scenarios.COARSE_MS)
        for seed in series.seeds
    ]
    exact, coarse = series.combined(runs)
    names = ("good_share", "p50_s", "p99_s", "ttft_p99_s", "memory_share", "per_minute")
    return {
        "case": {"cell": COMMON, "steps": "coarse against exact", "step_ms": scenarios.COARSE_MS},
        "exact": {name: exact[name] for name in names},
        "coarse": {name: coarse[name] for name in names},
    }


def scale_bars(cases: Sequence[dict[str, Any]]) -> list[report.Bar]:
    """How far coarse steps are off."""
    case = next((case for case in cases if "steps" in case["case"]), None)
    if case is None:
        return []
    exact, coarse = case["exact"], case["coarse"]
    return [
        report.Bar(f"coarse steps: {name} off by", abs(coarse[name] / exact[name] - 1), "<=", 0.03)
        for name in ("good_share", "p99_s")
    ]


def mixed_fleet(series: Series) -> dict[str, Any]:
    """What the mixed fleet sustains, and every policy's p99 at 80 % of that."""
    found = series.curve(MIXED, bars.OWN, MIXED_RATES)
    most = highest(found)
    rate = SHARE_OF_SUSTAINED * most
    at = {
        policy: series.curve(MIXED, policy, [rate])[rate]
        for policy in ALL
        if policy == bars.OWN or ALL[policy].rival or policy in bars.OWN_BASELINES
    }
    return {
        "case": {"cell": MIXED, "part": "at 80 % of what predictive sustains", "rate": rate},
        "sustained_rate": most,
        "p99_s": {policy: figures["p99_s"] for policy, figures in at.items()},
        "good_share": {policy: figures["good_share"] for policy, figures in at.items()},
    }


def mixed_bars(cases: Sequence[dict[str, Any]]) -> list[report.Bar]:
    """p99 on the mixed fleet against round robin's and the best rival's."""
    case = next((case for case in cases if "part" in case["case"]), None)
    if case is None:
        return []
    p99 = {policy: inf if value is None else value for policy, value in case["p99_s"].items()}
    own, best = p99[bars.OWN], min(p99[policy] for policy in bars.rivals(p99))
    return [
        report.Bar("mixed fleet at 80 % load: p99 / round robin's", own / p99["round_robin"], "<=", 0.4),
        report.Bar("mixed fleet at 80 % load: p99 / best rival's", own / best, "<=", 0.6),
    ]


def overall_bars(cells: Cells, cases: Sequence[dict[str, Any]]) -> list[report.Bar]:
    """What is compared between cells."""
    found = mixed_bars(cases) + scale_bars(cases)
    if any(case["case"].get("table") == "article" for case in cases):
        capacity = 16_000
        plain = article.sustained(cases, capacity, "round_robin")
        own = article.sustained(cases, capacity, "predictive")
        found.append(
            report.Bar(
                "tight fleet: sustained rate / round robin's", own / plain if plain else None, ">=", 1.7
            )
        )
    if "conv-stale" in cells and "conv-tight-crash" in cells:
        stale, fresh = (cells[name][bars.OWN]["good_share"] for name in ("conv-stale", "conv-tight-crash"))
        found.append(report.Bar("stale telemetry: share of the goodput lost", 1 - stale / fresh, "<=", 0.05))
    slowest = min(
        (figures["per_minute"] for cell in cells.values() for figures in cell.values()), default=None
    )
    found.append(report.Bar("simulated requests a minute, slowest", slowest, ">=", 20_000))
    return found


def earlier(quick: bool, renewed: Sequence[str], article_too: bool) -> list[dict[str, Any]]:
    """The cases that an earlier run left and this one does not renew."""
    path = report.RESULTS / f"{NAME}.json"
    if not path.exists():
        return []
    before = json.loads(path.read_text())
    if before.get("quick") != quick:
        return []
    return [
        case
        for case in before["cases"]
        if (not article_too if "table" in case["case"] else case["case"]["cell"] not in renewed)
    ]


def _ended(figures: dict[str, Any]) -> dict[str, Any]:
    """Figures read back: what has no end was written as null."""
    return {
        name: inf
        if value is None
        else [inf if item is None else item for item in value]
        if isinstance(value, list)
        else value
        for name, value in figures.items()
    }


def cells_of(cases: Sequence[dict[str, Any]]) -> Cells:
    """The figures of each policy in each cell."""
    found: Cells = {}
    for case in cases:
        what = case["case"]
        if "policy" in what and "cell" in what:
            figures = {name: value for name, value in case.items() if name != "case"}
            found.setdefault(what["cell"], {})[what["policy"]] = _ended(figures)
    return found


def _cases(known: scenarios.Scenarios, cells: Cells) -> Iterable[dict[str, Any]]:
    for name, rows in cells.items():
        cell = known.cells[name]
        for policy, figures in rows.items():
            yield {
                "case": {
                    "cell": name,
                    "policy": policy,
                    "kind": cell.kind.value,
                    "fleet": cell.fleet,
                    "capacity": cell.capacity,
                    "rate": cell.rate,
                },
                **figures,
            }


def main() -> int:
    """Run the bench; missed bars are said, not an exit status. 2 when the traces are not at hand."""
    parser = argparse.ArgumentParser(prog="python -m bench.policy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few cells and policies, one seed")
    parser.add_argument("--cells", default="", help="only these, comma-separated (`article`: its table)")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    console = report.console()
    known = scenarios.load()
    chosen = [name for name in arguments.cells.split(",") if name]
    try:
        return _run(known, arguments.quick, chosen, arguments.processes, console)
    except MissingTraceError as error:
        print(error, file=sys.stderr)
        return 2


def _run(
    known: scenarios.Scenarios, quick: bool, chosen: Sequence[str], processes: int, console: Console
) -> int:
    names = [name for name in (chosen or (QUICK_CELLS if quick else known.cells)) if name in known.cells]
    policies = list(QUICK_POLICIES if quick else ALL)
    seeds = known.seeds[:1] if quick else known.seeds
    count = QUICK_REQUESTS if quick else None
    clock = time.perf_counter()
    cases: list[dict[str, Any]] = []
    with_article = "article" in chosen or not chosen
    with ProcessPoolExecutor(processes) as pool:
        series = Series(seeds, count, pool)
        rows = {
            name: [policy for policy in policies if policy in (known.cells[name].policies or policies)]
            for name in names
        }
        cells = run_cells(rows, series, console)
        for name, shown in cells.items():
            cell = known.cells[name]
            title = f"{name}: {cell.about} ({cell.rate:g}/s, {cell.kind.value})"
            table.show(title, shown, console, own=bars.OWN)
        cases += _cases(known, cells)
        if MIXED in names and not quick:
            cases.append(mixed_fleet(series))
        if COMMON in names and not quick:
            cases.append(coarse_steps(series))
        if with_article:
            more = article.run(quick, Series(seeds, count or article.REQUESTS, pool))
            cases += more
            table.article(more, console)
    if chosen:
        cases = earlier(quick, names, with_article) + cases
    found = [bar for name, rows in cells_of(cases).items() for bar in bars.of_cell(name, rows)]
    found += overall_bars(cells_of(cases), cases)
    report.show_bars(found, console)
    overall = {
        "sources": sorted(set(SOURCES.values())),
        "seeds": seeds,
        "requests": count or known.requests,
        "wall_s": round(time.perf_counter() - clock, 1),
    }
    path = report.write(NAME, quick=quick, seed=seeds[0], overall=overall, cases=cases, bars=found)
    if not quick:
        plot.plot(path.parent, cases)
    console.print(f"{path.relative_to(report.ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
