"""A user's own log of requests, plain or gzipped: CSV or JSON lines with a time and two lengths a row, or
Tokenweir's access log."""

from __future__ import annotations

import csv
import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import blake2b
from itertools import chain
from math import isfinite
from pathlib import Path
from typing import IO, Any, Final

from bench.policy.traces import MOONCAKE_BLOCK, Asked

COLUMNS: Final = {
    "time": ("timestamp", "time", "arrival", "arrived_at", "time_ms"),
    "prompt": ("prompt_tokens", "input_tokens", "input_length", "contexttokens", "prompt"),
    "output": ("completion_tokens", "output_tokens", "output_length", "generatedtokens", "output"),
}
"""Names by which each column is known, whatever their case."""
OPTIONAL: Final = {
    "session": ("session", "session_id"),
    "key": ("key", "user", "client"),
    "blocks": ("hash_ids",),
}
ACCESS: Final = frozenset({"time", "path", "status", "total_s"})
"""Members by which a line of Tokenweir's access log is known."""
LONGEST: Final = 10_000_000
"""More tokens than that in one request are no length."""
EPOCHS: Final = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))
"""Times above the first are epochs in parts of a second: nanoseconds, microseconds, milliseconds."""
GZIP: Final = b"\x1f\x8b"


class LogError(ValueError):
    """The file cannot be replayed. The message names the line and what is wrong with it."""


@dataclass(frozen=True)
class Log:
    """What a file tells."""

    asked: list[Asked]
    """The requests, by time from the first."""
    without_lengths: int = 0
    """Lines of an access log that tell no lengths: what was refused, failed, or produced no text."""


def read(path: Path) -> Log:
    """The requests of a log. Raises LogError, or OSError when it cannot be read."""
    with path.open("rb") as file:
        packed = file.read(len(GZIP)) == GZIP
    opener: Any = gzip.open if packed else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as lines:
        try:
            rows = list(_rows(path, lines))
        except (UnicodeDecodeError, EOFError, zlib.error, gzip.BadGzipFile, csv.Error) as error:
            raise LogError(f"{path}: CSV or JSON lines are wanted (.gz too): {error}") from error
    asked = sorted((row for row in rows if row is not None), key=lambda row: row.at)
    left_out = len(rows) - len(asked)
    if len(asked) < 2:
        also = f"; {left_out} tell no lengths" if left_out else ""
        raise LogError(f"{path}: at least two requests are wanted, found {len(asked)}{also}")
    begin = asked[0].at
    if asked[-1].at == begin:
        raise LogError(f"{path}: all requests have the same time, so nothing tells how fast they came")
    return Log([replace(row, at=row.at - begin) for row in asked], left_out)


def _rows(path: Path, lines: IO[str]) -> Iterator[Asked | None]:
    """The requests as they stand in the file; None for one without lengths."""
    blank, head = 0, ""
    for head in lines:
        if head.strip():
            break
        blank += 1
    every = chain([head], lines)
    if head.lstrip().startswith("{"):
        return _parsed(path, _json(path, every, blank))
    return _parsed(path, _csv(every, blank, head))


def _csv(lines: Iterator[str], blank: int, head: str) -> Iterator[tuple[int, Mapping[str, Any]]]:
    rows = csv.DictReader(lines, delimiter=next((mark for mark in ",;\t" if mark in head), ","))
    for row in rows:
        yield blank + rows.line_num, row


def _json(path: Path, lines: Iterator[str], blank: int) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(lines, start=blank + 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as error:
            raise LogError(f"{path}:{number}: no JSON: {error}") from None
        if not isinstance(row, dict):
            raise LogError(f"{path}:{number}: an object is wanted")
        yield number, row


def _parsed(path: Path, rows: Iterator[tuple[int, Mapping[str, Any]]]) -> Iterator[Asked | None]:
    names: dict[str, str] = {}
    for number, row in rows:
        where = f"{path}:{number}"
        if row.keys() >= ACCESS:
            yield _served(where, row)
            continue
        if not names:
            names = _columns(path, list(row))
        session = row.get(names["session"]) if "session" in names else None
        prompt = max(1, _tokens(where, names["prompt"], row.get(names["prompt"])))
        blocks = _blocks(where, row.get(names["blocks"])) if "blocks" in names else ()
        if blocks and not session:
            # As in the Mooncake traces: a chain of requests shares its first two blocks.
            session = blocks[min(1, len(blocks) - 1)]
        yield Asked(
            _seconds(where, names["time"], row.get(names["time"]), in_ms="blocks" in names),
            prompt,
            max(1, _tokens(where, names["output"], row.get(names["output"]))),
            _number(session) if session else None,
            str(row.get(names["key"]) or "") if "key" in names else "",
            blocks[: prompt // MOONCAKE_BLOCK],
        )


def _served(where: str, row: Mapping[str, Any]) -> Asked | None:
    """A line of the access log, which is written when a request ends. Where the engine did not tell the
    prompt's tokens, the gateway's estimate serves."""
    prompt, output = row.get("prompt"), row.get("output")
    if prompt is None:
        prompt = row.get("prompt_estimate")
    if prompt is None or output is None:
        return None
    ended, took = (_seconds(where, name, row[name]) for name in ("time", "total_s"))
    return Asked(
        ended - took,
        max(1, _tokens(where, "prompt", prompt)),
        max(1, _tokens(where, "output", output)),
        key=str(row.get("key") or ""),
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


def _number(text: object) -> int:
    """The same number for the same text, in every process."""
    return int.from_bytes(blake2b(str(text).encode(), digest_size=7).digest(), "big")


def _blocks(where: str, value: Any) -> tuple[int, ...]:
    """What the blocks of a prompt hold, as the Mooncake format tells it (its times are milliseconds)."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            value = None
    if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
        raise LogError(f"{where}: hash_ids: a list of numbers is wanted, one for {MOONCAKE_BLOCK} tokens")
    return tuple(value)


def _seconds(where: str, name: str, value: Any, *, in_ms: bool = False) -> float:
    """A number is seconds, or milliseconds where the column, its size or `in_ms` says so; a text is a
    date."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        try:
            return datetime.fromisoformat(str(value).strip()).timestamp()
        except ValueError:
            raise LogError(f"{where}: {name}: a number or a date is wanted, got {value!r}") from None
    if not isfinite(number):
        raise LogError(f"{where}: {name}: a finite number is wanted, got {value!r}")
    if in_ms or name.lower().endswith("_ms"):
        return number / 1000
    # Epochs in seconds have ten digits until 2286.
    return number / next((parts for above, parts in EPOCHS if number > above), 1)


def _tokens(where: str, name: str, value: Any) -> int:
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise LogError(f"{where}: {name}: a number of tokens is wanted, got {value!r}") from None
    if not (isfinite(number) and 0 <= number <= LONGEST):
        raise LogError(f"{where}: {name}: 0 to {LONGEST:,} tokens are wanted, got {value!r}")
    return int(number)
