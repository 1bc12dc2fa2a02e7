"""Processes that learn beside the sidecar: at a low priority, on one thread."""

from __future__ import annotations

import asyncio
import importlib.util
import os
from asyncio.subprocess import Process
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
ONE_THREAD: Final = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def lacking(packages: Iterable[str]) -> list[str]:
    """Those of the packages that are not installed."""
    return [name for name in packages if importlib.util.find_spec(name) is None]


async def begin(command: Sequence[str], niceness: int, **more: Any) -> Process:
    """Start a process in the repository's root. `more` goes to `create_subprocess_exec`. Raises OSError."""
    return await asyncio.create_subprocess_exec(
        "nice", "-n", str(niceness), *command, cwd=ROOT, env={**os.environ, **ONE_THREAD}, **more
    )
