"""The admin API's changes as they are written: single ones, their file, which of two holds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import structlog
from pydantic import BaseModel, ConfigDict, Field

log = structlog.get_logger(__name__)

ENDING: Final = ".state.json"


class Entry(BaseModel):
    """One change. `value` None with `dropped` means: as the configuration says."""

    model_config = ConfigDict(extra="ignore", frozen=True)
    time_ms: Annotated[int, Field(ge=0)]
    value: Any = None
    dropped: bool = False
    base: str | None = None
    """Digest of what `tokenweir.yaml` said of the subject where the entry was made."""


class Changes(BaseModel):
    """All entries by name."""

    model_config = ConfigDict(extra="ignore", frozen=True, populate_by_name=True)
    schema_: Literal[1] = Field(1, alias="schema")
    entries: dict[str, Entry] = {}
    bases: dict[str, str] = {}
    """Digests of what this sidecar's `tokenweir.yaml` said when the entry came; in the file only."""


def rank(entry: Entry) -> tuple[int, str]:
    """Order of two entries of one name: the newer, and for equal times any order that all agree on."""
    return entry.time_ms, entry.model_dump_json()


def in_order(entries: Mapping[str, Entry]) -> dict[str, Entry]:
    """The entries by name: equal ones give equal text."""
    return {name: entries[name] for name in sorted(entries)}


def beside(path: Path, state_dir: Path) -> Path:
    """A file of the configuration's name in its folder, or in `state_dir` where that cannot be written."""
    name = path.stem + ENDING
    beside = path.parent / name
    writable = os.access(path.parent, os.W_OK) and (not beside.exists() or os.access(beside, os.W_OK))
    return beside if writable else state_dir / name


def read_file(path: Path) -> Changes:
    """What the file holds: nothing where there is none. A damaged one is set aside."""
    try:
        return Changes.model_validate_json(path.read_text())
    except FileNotFoundError:
        return Changes()
    except ValueError as error:
        aside = path.with_name(path.name + ".damaged")
        path.replace(aside)
        log.error("state_file_damaged", file=str(path), moved_to=str(aside), problem=str(error)[:200])
        return Changes()
