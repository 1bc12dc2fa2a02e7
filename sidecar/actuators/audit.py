"""The audit log: what was done to engines, by which means, why, and how it went.

One JSON line an entry in `actions.log` of the state folder, with one older file beside it, and the newest
entries in memory for the admin API. An action is noted when it begins and when it ends: one that a crash of
the sidecar cut off has begun and not ended.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import structlog
from pydantic import BaseModel, ConfigDict

from sidecar.actuators.actuator import Action, Order
from sidecar.clock import wall_ms

log = structlog.get_logger(__name__)

FILE: Final = "actions.log"
MOST_BYTES: Final = 4 * 1024**2
LONGEST_TEXT: Final = 1000

Stage = Literal["begun", "late", "done", "failed", "dry run"]


class Entry(BaseModel):
    """One line of the log."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    time_ms: int
    id: str
    """The same for an action's begin and end."""
    backend: str
    actuator: str
    action: Action
    arguments: tuple[str, ...] = ()
    reason: str = ""
    stage: Stage
    detail: str = ""
    duration_ms: float = 0.0


class Audit:
    """The log of one sidecar."""

    def __init__(self, folder: Path, kept: int) -> None:
        self._path = folder / FILE
        self._entries: deque[Entry] = deque(self._load(kept), maxlen=kept)
        self.counts: Counter[tuple[str, str, str]] = Counter()
        """(backend, action, stage) -> entries since the start."""
        self.unwritten = 0
        """Entries that could not be written to the file."""

    def keep(self, kept: int) -> None:
        """Keep so many entries in memory from now on."""
        if kept != self._entries.maxlen:
            self._entries = deque(self._entries, maxlen=kept)

    def entries(self) -> Iterator[Entry]:
        """The newest first."""
        return reversed(self._entries)

    def note(
        self, order: Order, actuator: str, stage: Stage, detail: str = "", duration_ms: float = 0.0
    ) -> None:
        """Add an entry. That the file cannot be written does not keep an engine from being restarted."""
        entry = Entry(
            time_ms=wall_ms(),
            id=order.id,
            backend=order.backend,
            actuator=actuator,
            action=order.action,
            arguments=order.arguments,
            reason=_short(order.reason),
            stage=stage,
            detail=_short(detail),
            duration_ms=round(duration_ms, 1),
        )
        self._entries.append(entry)
        self.counts[entry.backend, entry.action.value, stage] += 1
        level = log.warning if stage in {"failed", "late"} else log.info
        level(
            "engine_action",
            backend=entry.backend,
            action=entry.action.value,
            actuator=actuator,
            stage=stage,
            reason=entry.reason,
            detail=entry.detail,
        )
        try:
            self._write(entry.model_dump_json() + "\n")
        except OSError as error:
            self.unwritten += 1
            log.error("audit_not_written", file=str(self._path), reason=str(error))

    def _write(self, line: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists() and self._path.stat().st_size + len(line) > MOST_BYTES:
            self._path.replace(self._path.with_name(FILE + ".1"))
        descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(descriptor, line.encode())
        finally:
            os.close(descriptor)

    def _load(self, kept: int) -> list[Entry]:
        """The newest entries of the files; lines that cannot be read are left out."""
        found: deque[Entry] = deque(maxlen=kept)
        for path in (self._path.with_name(FILE + ".1"), self._path):
            try:
                lines = path.read_text(errors="replace").splitlines()
            except OSError:
                continue
            for line in lines[-kept:]:
                try:
                    found.append(Entry.model_validate_json(line))
                except ValueError:
                    continue
        return list(found)


def _short(text: str) -> str:
    """One line, of bounded length, without control characters."""
    clean = "".join(character if character.isprintable() else " " for character in text)
    return clean if len(clean) <= LONGEST_TEXT else clean[: LONGEST_TEXT - 1] + "…"
