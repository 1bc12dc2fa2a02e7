"""`make bench-policy [QUICK=1]`: every policy in every cell of `scenarios.yaml`, and the article's table."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from rich.console import Console

from bench import report
from bench.policy import article, bars, beside, cells, plot, record, scenarios, table
from bench.policy.cells import Part
from bench.policy.policies import ALL, OWN
from bench.policy.record import Case
from bench.policy.scenarios import Scenarios
from bench.policy.sustained import Series
from bench.policy.traces import SOURCES, MissingTraceError

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


def main() -> int:
    """Run the bench; missed bars are said, not an exit status. 2 when the traces are not at hand."""
    parser = argparse.ArgumentParser(prog="python -m bench.policy", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few cells and policies, one seed")
    parser.add_argument("--cells", default="", help="only these, comma-separated (`article`: its table)")
    parser.add_argument("--policy", action="append", help="only this one (again for more)")
    parser.add_argument("--resume", action="store_true", help="leave what was recorded with this size")
    parser.add_argument("--tuning", action="store_true", help="with the seeds for tuning; writes nothing")
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    console = report.console()
    known = scenarios.load()
    chosen = [name for name in arguments.cells.split(",") if name] or [
        *(QUICK_CELLS if arguments.quick else known.cells),
        article.NAME,
    ]
    unknown = [name for name in chosen if name not in known.cells and name != article.NAME]
    if unknown:
        names = ", ".join((*known.cells, article.NAME))
        parser.error(f"no cell is named {unknown[0]!r}; known: {names}")
    only = arguments.policy or []
    for policy in only:
        if policy not in ALL:
            parser.error(f"no policy is named {policy!r}; known: {'; '.join(ALL)}")
    seeds = known.tuning_seeds if arguments.tuning else known.seeds
    bench = _Bench(known, arguments.quick, seeds[:1] if arguments.quick else seeds, arguments.tuning, console)
    try:
        with ProcessPoolExecutor(arguments.processes) as pool:
            again = arguments.resume or bool(arguments.cells or only)
            bench.run(chosen, only, pool, resume=arguments.resume, afresh=not again)
    except MissingTraceError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


class _Bench:
    """One call of the bench: what is recorded grows part by part."""

    def __init__(
        self, known: Scenarios, quick: bool, seeds: Sequence[int], tuning: bool, console: Console
    ) -> None:
        self._known, self._quick, self._seeds, self._tuning = known, quick, seeds, tuning
        self._console = console
        self._cases: list[Case] = []
        self._limits: list[dict[str, float]] = []

    def _parts(self, names: Sequence[str], only: Sequence[str], pool: ProcessPoolExecutor) -> list[Part]:
        count = QUICK_REQUESTS if self._quick else None
        policies = only or list(QUICK_POLICIES if self._quick else ALL)
        of_cells = [name for name in names if name in self._known.cells]
        found = cells.parts(self._known, of_cells, policies, Series(self._seeds, count, pool), self._quick)
        series = Series(self._seeds, count or article.REQUESTS, pool)
        self._limits = article.limits(self._known, series)
        if article.NAME in names:
            rows = article.parts(self._quick, series)
            found += [part for part in rows if not only or part.marks["policy"] in only]
        return found

    def run(
        self,
        names: Sequence[str],
        only: Sequence[str],
        pool: ProcessPoolExecutor,
        *,
        resume: bool,
        afresh: bool,
    ) -> None:
        """Run the parts, of all policies or `only` of these. `resume`: those that were not recorded;
        `afresh`: forget what was recorded."""
        if not self._tuning and not afresh:
            self._cases = record.recorded(self._quick)
        parts = self._parts(names, only, pool)
        for number, part in enumerate(parts, start=1):
            if resume and record.has(self._cases, part.marks):
                continue
            began = time.perf_counter()
            found = part.run()
            self._cases = record.merged(self._cases, found)
            label = part.marks["policy"] if part.name == article.NAME else part.marks.get("part", "")
            took = time.perf_counter() - began
            self._console.print(f"{number}/{len(parts)} {part.name} {label} {took:.0f} s")
            self._show(part, found)
            if not self._tuning:
                self._write()
        if article.NAME in names:
            rows = record.of_table(self._cases, article.NAME)
            table.article(rows, self._console)
            table.beside(article.beside(rows), self._console)
            table.limits(self._limits, self._console)
        judged = bars.every(self._cases)
        report.show_bars(judged, self._console)
        beside.show(beside.missed(self._cases, judged), self._console)
        if not self._tuning:
            path = self._write()
            if not self._quick:
                plot.plot(path.parent, self._cases)
            self._console.print(f"{path.relative_to(report.ROOT)}")

    def _show(self, part: Part, found: Sequence[Case]) -> None:
        rows = record.cells_of(found).get(part.name)
        if rows:
            cell = self._known.cells[part.name]
            title = f"{part.name}: {cell.about} ({cell.rate:g}/s, {cell.kind.value})"
            table.show(title, rows, self._console, own=OWN)

    def _write(self) -> Path:
        found = bars.every(self._cases)
        overall: dict[str, Any] = {
            "sources": sorted(set(SOURCES.values())),
            "seeds": list(self._seeds),
            "tuning_seeds": list(self._known.tuning_seeds),
            "article": article.TOLD,
            "limits": self._limits,
            "beside_missed_bars": beside.missed(self._cases, found),
        }
        return report.write(
            record.NAME,
            quick=self._quick,
            seed=self._seeds[0],
            overall=overall,
            cases=self._cases,
            bars=found,
        )


if __name__ == "__main__":
    sys.exit(main())
