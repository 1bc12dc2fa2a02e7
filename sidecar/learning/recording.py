"""Keeps the features of completed requests with their lengths in files, for training.

Rows wait in memory and are written to a new file now and then; when the files take more than they may, the
oldest go. A crash loses the rows that wait: some minutes of a sample. Files are Parquet; where training is
not installed yet (requirements-train.lock, which has pyarrow) compressed JSON lines, which training reads as
well."""

from __future__ import annotations

import asyncio
import base64
import gzip
import importlib
import importlib.util
import json
from pathlib import Path
from typing import Any, Final

import structlog

from sidecar.clock import monotonic_ms, wall_ms
from tokenweir.contract.records import Completion, Outcome
from tokenweir.recorded import FOLDER, LINES, PARQUET, files

log = structlog.get_logger(__name__)

ROWS_OF_A_FILE: Final = 5000
EVERY_MS: Final = 300_000
MOST_ROWS: Final = 20_000
"""Rows that wait at most, should the disk not take them."""
CAPPED: Final = {"length", "max_tokens"}
CUT: Final = {Outcome.CLIENT_GONE, Outcome.UPSTREAM_BROKE, Outcome.TIMEOUT}


def ending(record: Completion) -> str | None:
    """How the output ended: by itself, by its limit, or cut short; None where it tells nothing."""
    if record.outcome is Outcome.OK:
        return "length" if record.finish in CAPPED else "stop"
    return "cut" if record.outcome in CUT and record.output else None


def row(record: Completion) -> dict[str, Any] | None:
    """The row of a record, or None for one without features or length."""
    end = ending(record)
    if record.features is None or not record.vector or record.output is None or end is None:
        return None
    try:
        vector, words = (base64.b64decode(text, validate=True) for text in (record.vector, record.words))
    except ValueError:
        return None
    return {
        "time_ms": record.time_ms,
        "model": record.model,
        "output": record.output / record.n,
        "ending": end,
        "limit": None if record.max_tokens is None else float(record.max_tokens),
        "features": record.features,
        "vector": vector,
        "words": words,
        "predictor": record.predictor,
        "mean": record.mean,
        "median": record.median,
        "q90": record.q90,
    }


class Recording:
    """The recorder of one sidecar. `step` writes what is due."""

    def __init__(self, state_dir: Path) -> None:
        self.folder = state_dir / FOLDER
        self.rows = 0
        """Rows taken since the start."""
        self.refused = 0
        """Records whose features could not be read."""
        self.dropped = 0
        """Rows lost because they could not be written."""
        self._waiting: list[dict[str, Any]] = []
        self._written_at = monotonic_ms()

    @property
    def waiting(self) -> int:
        """Rows that are not written yet."""
        return len(self._waiting)

    def add(self, record: Completion) -> None:
        """One believed record."""
        if record.features is None:
            return
        found = row(record)
        if found is None:
            self.refused += 1
            return
        self.rows += 1
        if len(self._waiting) >= MOST_ROWS:
            self.dropped += 1
            return
        self._waiting.append(found)

    async def step(self, keep: int) -> None:
        """Write what waits, if it is due, and remove what is beyond `keep` bytes."""
        due = len(self._waiting) >= ROWS_OF_A_FILE or monotonic_ms() - self._written_at >= EVERY_MS
        if due:
            await self.flush(keep)

    async def flush(self, keep: int) -> None:
        """Write what waits."""
        self._written_at = monotonic_ms()
        if not self._waiting:
            return
        rows, self._waiting = self._waiting, []
        try:
            await asyncio.to_thread(write, self.folder, rows, keep)
        except OSError as error:
            self.dropped += len(rows)
            log.warning("completions_not_recorded", folder=str(self.folder), reason=str(error))


def write(folder: Path, rows: list[dict[str, Any]], keep: int) -> None:
    """Write a file of rows, and remove the oldest files beyond `keep` bytes. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    columns = importlib.util.find_spec("pyarrow") is not None
    path = folder / f"{wall_ms():015d}-{len(rows)}{PARQUET if columns else LINES}"
    temporary = path.with_suffix(".partial")
    (_write_parquet if columns else _write_lines)(temporary, rows)
    temporary.replace(path)
    retain(folder, keep)


def _write_parquet(path: Path, rows: list[dict[str, Any]]) -> None:
    arrow, parquet = importlib.import_module("pyarrow"), importlib.import_module("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(rows), path, compression="zstd")


def _write_lines(path: Path, rows: list[dict[str, Any]]) -> None:
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        for each in rows:
            encoded = {name: base64.b64encode(each[name]).decode() for name in ("vector", "words")}
            lines.write(json.dumps({**each, **encoded}, separators=(",", ":")) + "\n")


def count(folder: Path) -> int:
    """Rows in the files, by their names."""
    return sum(int(path.name.partition("-")[2].partition(".")[0] or 0) for path in files(folder))


def retain(folder: Path, keep: int) -> None:
    """Remove the oldest files until no more than `keep` bytes are left; the newest always stays."""
    found = files(folder)
    sizes = [path.stat().st_size for path in found]
    for path, size in list(zip(found, sizes, strict=True))[:-1]:
        if sum(sizes) <= keep:
            break
        path.unlink(missing_ok=True)
        sizes.remove(size)
