"""Where a sidecar records completions, and the trainer finds them."""

from __future__ import annotations

from pathlib import Path
from typing import Final

FOLDER: Final = "completions"
"""In the state folder."""
PARQUET: Final = ".parquet"
LINES: Final = ".jsonl.gz"
ENOUGH: Final = 2000
"""Recorded completions from which a predictor is trained from them."""


def files(folder: Path) -> list[Path]:
    """The files of a folder, the oldest first."""
    return sorted([*folder.glob(f"*{PARQUET}"), *folder.glob(f"*{LINES}")])
