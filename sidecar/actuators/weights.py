"""The files of a model's weights, in the order in which engines read them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

SUFFIXES: Final = (".safetensors", ".gguf", ".bin", ".pt")
"""The first of which there is a file counts: a folder often has the same weights twice."""
INDEX: Final = ".index.json"
PART: Final = re.compile(r"^(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})(?P<suffix>\.[a-z]+)$")
MOST_FILES: Final = 4096
LARGEST_INDEX: Final = 64 * 1024**2


class WeightsError(ValueError):
    """No weights can be read there; the text says why."""


def shards(path: Path) -> list[Path]:
    """The files of the weights at `path`: a folder (a model of a hub's cache too), one file, or the first of
    several parts. Raises WeightsError, which names what is missing."""
    if path.is_file():
        return _parts(path)
    if not path.is_dir():
        raise WeightsError(f"{path}: no such file or folder")
    folder = _snapshot(path)
    for suffix in SUFFIXES:
        found = sorted(file for file in folder.iterdir() if file.suffix == suffix and file.is_file())
        if found:
            return _indexed(folder, suffix, found)[:MOST_FILES]
    there = ", ".join(sorted(file.name for file in folder.iterdir())[:10]) or "nothing"
    raise WeightsError(f"{folder}: no {', '.join(SUFFIXES)} file; there is {there}")


def _snapshot(folder: Path) -> Path:
    """The snapshot of a Hugging Face cache folder (`models--org--name`), or the folder itself."""
    snapshots = folder / "snapshots"
    if not snapshots.is_dir():
        return folder
    reference = folder / "refs" / "main"
    if reference.is_file():
        named = snapshots / reference.read_text().strip()
        if named.is_dir():
            return named
    found = sorted((one for one in snapshots.iterdir() if one.is_dir()), key=lambda one: one.stat().st_mtime)
    return found[-1] if found else folder


def _parts(path: Path) -> list[Path]:
    """All parts of a file that is one of several (`name-00001-of-00003.gguf`), else the file."""
    match = PART.match(path.name)
    if match is None:
        return [path]
    count = int(match["count"])
    names = [f"{match['stem']}-{n:05d}-of-{count:05d}{match['suffix']}" for n in range(1, count + 1)]
    missing = [name for name in names if not (path.parent / name).is_file()]
    if missing:
        raise WeightsError(f"{path.parent}: {missing[0]} is missing")
    return [path.parent / name for name in names]


def _indexed(folder: Path, suffix: str, found: list[Path]) -> list[Path]:
    """The files that an index names, if there is one, in the order of their names. What it does not name
    (another precision beside, say) is not read."""
    named: set[str] = set()
    for index in folder.glob(f"*{suffix}{INDEX}"):
        if index.stat().st_size <= LARGEST_INDEX:
            named |= _names(index)
    chosen = [file for file in found if file.name in named]
    if not named:
        return found
    missing = sorted(named - {file.name for file in found})
    if missing:
        raise WeightsError(f"{folder}: {missing[0]} of the index is missing")
    return chosen


def _names(index: Path) -> set[str]:
    try:
        document: Any = json.loads(index.read_text())
        return {str(name) for name in document["weight_map"].values()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise WeightsError(f"{index}: not an index of weights") from None
