"""A user's own log of requests: a CSV or JSONL file, plain or gzipped, with a time and two lengths a row."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from math import isfinite
from pathlib import Path
from typing import IO, Any, Final

from bench.policy.traces import Asked

COLUMNS: Final = {
    "time": ("timestamp", "time", "arrival", "arrived_at", "time_ms"),
    "prompt": ("prompt_tokens", "input_tokens", "input_length", "contexttokens", "prompt"),
    "output": ("completion_tokens", "output_tokens", "output_length", "generatedtokens", "output"),
}
"""Names by which each column is known, whatever their case."""
OPTIONAL: Final = {"session": ("session", "session_id"), "key": ("key", "user", "client")}
LONGEST: Final = 10_000_000
"""More tokens than that in one request are no length."""


class LogError(ValueError):
    """The file cannot be replayed. The message names the line and what is wrong with it."""


def read(path: Path) -> list[Asked]:
    """The requests of a log in order of time. Raises LogError, or OSError when it cannot be read."""
    opener: Any = gzip.open if path.suffix == ".gz" else open
    kind = path.name.removesuffix(".gz").rsplit(".", 1)[-1].lower()
    if kind not in {"csv", "jsonl"}:
        raise LogError(f"{path}: a .csv or .jsonl file is wanted (.gz too)")
    with opener(path, "rt", encoding="utf-8") as lines:
        try:
            rows = list(_parsed(path, _csv(lines) if kind == "csv" else _jsonl(path, lines)))
        except (UnicodeDecodeError, gzip.BadGzipFile, csv.Error) as error:
            raise LogError(f"{path}: {error}") from error
    if len(rows) < 2:
        raise LogError(f"{path}: at least two requests are wanted, found {len(rows)}")
    rows.sort(key=lambda row: row.at)
    begin = rows[0].at
    return [Asked(row.at - begin, row.prompt, row.output, row.session, row.key, row.hashes) for row in rows]


def _csv(lines: IO[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    yield from enumerate(csv.DictReader(lines), start=2)


def _jsonl(path: Path, lines: Iterable[str]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise LogError(f"{path}:{number}: no JSON: {error}") from None
        if not isinstance(row, dict):
            raise LogError(f"{path}:{number}: an object is wanted")
        yield number, row


def _parsed(path: Path, rows: Iterable[tuple[int, Mapping[str, Any]]]) -> Iterator[Asked]:
    names: dict[str, str] = {}
    for number, row in rows:
        if not names:
            names = _columns(path, list(row))
        where = f"{path}:{number}"
        yield Asked(
            _seconds(where, names["time"], row.get(names["time"])),
            max(1, _tokens(where, names["prompt"], row.get(names["prompt"]))),
            max(1, _tokens(where, names["output"], row.get(names["output"]))),
            hash(str(row[names["session"]])) if "session" in names and row.get(names["session"]) else None,
            str(row.get(names["key"]) or "") if "key" in names else "",
        )


def _columns(path: Path, found: list[str]) -> dict[str, str]:
    by_name = {str(name).strip().lower(): name for name in found if name is not None}
    names: dict[str, str] = {}
    for what, known in {**COLUMNS, **OPTIONAL}.items():
        name = next((by_name[each] for each in known if each in by_name), None)
        if name is not None:
            names[what] = name
        elif what in COLUMNS:
            raise LogError(
                f"{path}: no column tells the {what}; one of {', '.join(known)} is wanted, "
                f"found {', '.join(map(str, found)) or 'none'}"
            )
    return names


def _seconds(where: str, name: str, value: Any) -> float:
    """A number is seconds, or milliseconds where the column or its size says so; a text is a date."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        try:
            return datetime.fromisoformat(str(value).strip()[:26]).timestamp()
        except ValueError:
            raise LogError(f"{where}: {name}: a number or a date is wanted, got {value!r}") from None
    if not isfinite(number):
        raise LogError(f"{where}: {name}: a finite number is wanted, got {value!r}")
    # Epochs in seconds have ten digits until 2286; a trace's own clock in ms is told by its column's name, or
    # is that of the Mooncake traces.
    return number / 1000 if name.lower().endswith("_ms") or number > 1e11 else number


def _tokens(where: str, name: str, value: Any) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise LogError(f"{where}: {name}: a number of tokens is wanted, got {value!r}") from None
    if not (isfinite(number) and 0 <= number <= LONGEST):
        raise LogError(f"{where}: {name}: 0 to {LONGEST:,} tokens are wanted, got {value!r}")
    return int(number)
