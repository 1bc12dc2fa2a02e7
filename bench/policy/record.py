"""`policy.json` as it grows: cases that were recorded are kept, those that are run again replaced."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import Any, Final

from bench import report

NAME: Final = "policy"
IDENTITY: Final = ("cell", "part", "table", "capacity", "policy", "loop", "clients")
"""What tells one case from another."""

Case = dict[str, Any]


def identity(case: Mapping[str, Any]) -> tuple[Any, ...]:
    """Which case it is, whatever it was run with. Only the article's table tells cases by their capacity."""
    what = case["case"]
    return tuple(what.get(name) if name != "capacity" or "table" in what else None for name in IDENTITY)


def recorded(quick: bool) -> list[Case]:
    """The cases of the file, if there is one of this size."""
    path = report.RESULTS / f"{NAME}.json"
    if not path.exists():
        return []
    before = json.loads(path.read_text())
    return list(before["cases"]) if before.get("quick") == quick else []


def merged(before: Sequence[Case], after: Sequence[Case]) -> list[Case]:
    """The cases of both, those of `after` in the place of equal ones before."""
    found = {identity(case): case for case in before}
    found.update((identity(case), case) for case in after)
    return list(found.values())


def has(cases: Iterable[Case], wanted: Mapping[str, Any]) -> bool:
    """Whether a case with all of these members was recorded."""
    return any(all(case["case"].get(name) == value for name, value in wanted.items()) for case in cases)


def _ended(value: Any) -> Any:
    """Figures read back: what has no end was written as null."""
    if isinstance(value, Mapping):
        return {name: item if name == "case" else _ended(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_ended(item) for item in value]
    return inf if value is None else value


def of_table(cases: Iterable[Case], name: str) -> list[Case]:
    """The cases of a table."""
    return [_ended(case) for case in cases if case["case"].get("table") == name]


def part(cases: Iterable[Case], name: str, cell: str | None = None) -> Case | None:
    """What was measured besides under a name, in a cell."""
    return next(
        (
            _ended(case)
            for case in cases
            if case["case"].get("part") == name and cell in {None, case["case"].get("cell")}
        ),
        None,
    )


def cells_of(cases: Iterable[Case]) -> dict[str, dict[str, dict[str, Any]]]:
    """The figures of each policy in each cell."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for case in cases:
        what = case["case"]
        if "policy" in what and "cell" in what:
            figures = {name: value for name, value in case.items() if name != "case"}
            found.setdefault(what["cell"], {})[what["policy"]] = _ended(figures)
    return found
