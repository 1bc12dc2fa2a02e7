"""The one shape of a bench's result: a JSON file under bench/results, its bars, and where it was measured."""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "bench" / "results"


@dataclass(frozen=True)
class Bar:
    """One thing that must hold: `value op limit`. A value that was not measured (None) does not hold."""

    name: str
    value: float | None
    op: Literal["<=", ">=", "=="]
    limit: float

    @property
    def ok(self) -> bool:
        """Whether it holds."""
        if self.value is None or math.isnan(self.value):
            return False
        if self.op == "==":
            return self.value == self.limit
        return self.value <= self.limit if self.op == "<=" else self.value >= self.limit


def data_folder() -> Path:
    """Return the folder of recorded data: `TOKENWEIR_DATA`, else `../shared/data` beside the repository."""
    return Path(os.environ.get("TOKENWEIR_DATA") or ROOT.parent / "shared" / "data")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""


def commit() -> str:
    """Return the commit of the working tree, with `+` when more than results was changed since; `unknown`
    outside git."""
    head = _git("rev-parse", "--short=12", "HEAD") or "unknown"
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/results")
    return head + ("+" if changed else "")


def machine() -> dict[str, Any]:
    """Return what the bench ran on: processor, cores, memory, system, Python."""
    model = ""
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text().splitlines()
        model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "cpu": model or platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(memory / 2**30, 1),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
    }


def _plain(value: Any) -> Any:
    """Replace what JSON has no word for: NaN and infinity become null."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def write(
    name: str,
    *,
    quick: bool,
    seed: int,
    overall: Mapping[str, Any],
    cases: Sequence[Mapping[str, Any]],
    bars: Sequence[Bar],
    folder: Path | None = None,
) -> Path:
    """Write `folder/NAME.json` (None: in bench/results) and return its path.

    Each of `cases` is `{"case": {what was run}, figure: value, ...}`.
    """
    document = {
        "bench": name,
        "quick": quick,
        "commit": commit(),
        "machine": machine(),
        "seed": seed,
        "overall": overall,
        "cases": cases,
        "bars": [
            {"name": bar.name, "value": bar.value, "limit": bar.limit, "op": bar.op, "ok": bar.ok}
            for bar in bars
        ],
    }
    folder = folder or RESULTS
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    path.write_text(json.dumps(_plain(document), indent=2, allow_nan=False) + "\n")
    return path


def console() -> Console:
    """Return a console as wide as the terminal, and wide enough for a bench's tables where there is none."""
    return Console() if sys.stdout.isatty() else Console(width=150)


def show_bars(bars: Sequence[Bar], to: Console) -> None:
    """Print the bars as a table and a last line that says how many were missed."""
    table = Table(title="Bars")
    for column, justify in (("bar", "left"), ("value", "right"), ("limit", "right"), ("", "left")):
        table.add_column(column, justify="right" if justify == "right" else "left")
    for bar in bars:
        value = "not measured" if bar.value is None else f"{bar.value:g}"
        verdict = "[green]met[/]" if bar.ok else "[bold red]missed[/]"
        table.add_row(bar.name, value, f"{bar.op} {bar.limit:g}", verdict)
    to.print(table)
    missed = sum(not bar.ok for bar in bars)
    to.print(f"{missed} of {len(bars)} bars missed" if missed else f"all {len(bars)} bars met")
