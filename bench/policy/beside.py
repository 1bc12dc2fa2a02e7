"""What stands beside a bar that is missed: what it comes to for rules that know every length, where each
request is a new chat, on an idle fleet, and without what the policy gives away on purpose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.policy import bars, record
from bench.policy.cells import AT_SHARE, IDLE, MIXED, WITHOUT_RAMP
from bench.policy.policies import CHATS, PREDICTIONS_ARE_TRUE
from bench.policy.record import Case
from bench.report import Bar

SHOWN = (*PREDICTIONS_ARE_TRUE, CHATS.name)
NAMES = {IDLE: "idle fleet", WITHOUT_RAMP: "without ramp"}

Beside = dict[str, dict[str, float]]
"""Bar -> what -> figure."""


def missed(cases: Sequence[Case], found: Sequence[Bar]) -> Beside:
    """Of each missed bar on goodput, p99 or keys what it would be otherwise."""
    cells = record.cells_of(cases)
    beside: Beside = {}
    for bar in found:
        if bar.ok:
            continue
        cell, _, what = bar.name.partition(": ")
        figures = _at_share(cases) if bar.name == bars.AT_80 else {}
        if cell in cells:
            figures = _in_cell(cases, cells[cell], cell, what)
        if figures:
            beside[bar.name] = figures
    return beside


def _in_cell(
    cases: Sequence[Case], rows: Mapping[str, Mapping[str, Any]], cell: str, what: str
) -> dict[str, float]:
    others = {name: rows[name] for name in SHOWN if name in rows}
    for part, name in NAMES.items():
        case = record.part(cases, part, cell)
        if case is not None:
            others[name] = case
    figures = {name: _value(rows, what, row) for name, row in others.items()}
    return {name: value for name, value in figures.items() if value is not None}


def _value(rows: bars.Figures, what: str, own: Mapping[str, Any]) -> float | None:
    """What a bar comes to with the figures of another row in the place of the policy's."""
    if what == bars.GOODPUT:
        return bars.against_best(rows, "good_share", own["good_share"])
    if what == bars.P99:
        return bars.against_best(rows, "p99_s", own["p99_s"])
    if what == bars.GAIN:
        return bars.gain(rows, own["good_share"], own["p99_s"])
    if what == bars.WORST_KEY:
        return own.get("worst_key")
    return None


def _at_share(cases: Sequence[Case]) -> dict[str, float]:
    case, idle = record.part(cases, AT_SHARE), record.part(cases, IDLE, MIXED)
    if case is None:
        return {}
    p99 = {name: case["p99_s"][name] for name in SHOWN if name in case["p99_s"]}
    if idle is not None:
        p99[NAMES[IDLE]] = idle["p99_s"]
    best = bars.best_at_share(case["p99_s"])
    return {name: value / best for name, value in p99.items()}


def show(found: Beside, console: Console) -> None:
    """The limits beside the missed bars, as a table."""
    if not found:
        return
    table = Table(title="Beside the missed bars")
    for head in ("bar", "what", "value"):
        table.add_column(head, justify="right" if head == "value" else "left")
    for bar, figures in found.items():
        for k, (what, value) in enumerate(figures.items()):
            table.add_row(bar if k == 0 else "", what, f"{value:g}")
    console.print(table)
