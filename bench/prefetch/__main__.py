"""`make bench-prefetch [QUICK=1]`: a model's shards from a cold page cache, as engines read them and by the
prefetch."""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench import report
from bench.report import Bar
from sidecar.actuators import prefetch
from sidecar.actuators.prefetch import Prefetch, cached_share, drop

SEEDS = (1, 2, 3)
SHARD_MIB = 256
SHARDS = 8
READERS = (2, 4, 8, 16)
BLOCK = 1024**2


def write_shards(folder: Path, count: int) -> list[Path]:
    """Shards of random bytes, on the disk. A disk that packs or dedupes must not help either way."""
    files = []
    for number in range(1, count + 1):
        path = folder / f"model-{number:05d}-of-{count:05d}.safetensors"
        with path.open("wb") as file:
            for _ in range(SHARD_MIB):
                file.write(os.urandom(BLOCK))
            file.flush()
            os.fsync(file.fileno())
        files.append(path)
    return files


def sequential(files: list[Path]) -> None:
    """One reader, 256 KiB at a time: the size at which one reader is fastest."""
    buffer = bytearray(BLOCK // 4)
    for path in files:
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def mapped(files: list[Path]) -> None:
    """Mapped and touched page by page, as engines do that map their weights."""
    for path in files:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as view:
            _ = sum(view[place] for place in range(0, len(view), mmap.PAGESIZE))


def timed(files: list[Path], call: Callable[[], None]) -> tuple[float, float, float]:
    """(seconds, share cached before, share cached after)."""
    drop(files)
    before = cached_share(files)
    began = time.monotonic()
    call()
    return time.monotonic() - began, before, cached_share(files)


def run(files: list[Path], repeats: int) -> list[dict[str, Any]]:
    """All ways, interleaved."""
    size = sum(path.stat().st_size for path in files)
    folder = files[0].parent
    ways: dict[str, Callable[[], None]] = {
        "plain sequential read": lambda: sequential(files),
        "mapped, page by page": lambda: mapped(files),
    }
    for readers in READERS:
        ways[f"prefetch, {readers} readers"] = lambda n=readers: _prefetch(folder, n)  # type: ignore[misc]
    taken: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ways}
    for number in range(repeats):
        for name in list(ways)[:: 1 if number % 2 else -1]:
            taken[name].append(timed(files, ways[name]))
    plain = [seconds for seconds, _, _ in taken["plain sequential read"]]
    return [
        {
            "case": {"name": name, "bytes": size, "files": len(files)},
            "mib_per_s": size / 2**20 / statistics.median(seconds for seconds, _, _ in found),
            "seconds": statistics.median(seconds for seconds, _, _ in found),
            "seconds_least": min(seconds for seconds, _, _ in found),
            "seconds_most": max(seconds for seconds, _, _ in found),
            "faster_than_sequential": statistics.median(
                one / seconds for one, (seconds, _, _) in zip(plain, found, strict=True)
            ),
            "cached_before": max(before for _, before, _ in found),
            "cached_after": min(after for _, _, after in found),
        }
        for name, found in taken.items()
    ]


def _prefetch(folder: Path, readers: int) -> None:
    progress = Prefetch(folder, readers).read()
    if progress.problem:
        raise RuntimeError(progress.problem)


def show(cases: list[dict[str, Any]], to: Console) -> None:
    """Print the cases as a table."""
    table = Table(title="From a cold page cache, median of the repeats")
    for column in ("way", "MiB/s", "s", "least", "most", "times as fast", "cached after"):
        table.add_column(column, justify="left" if column == "way" else "right")
    for case in cases:
        table.add_row(
            case["case"]["name"],
            f"{case['mib_per_s']:,.0f}",
            *(f"{case[name]:.2f}" for name in ("seconds", "seconds_least", "seconds_most")),
            f"{case['faster_than_sequential']:.2f}",
            f"{case['cached_after']:.0%}",
        )
    to.print(table)


def main() -> None:
    """Run the bench; missed bars are said, not an exit status."""
    parser = argparse.ArgumentParser(prog="python -m bench.prefetch", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer shards, one repeat a seed")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; default: a temporary one")
    options = parser.parse_args()
    console = report.console()
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="tokenweir-weights-") as name:
        files = write_shards(Path(name), SHARDS // 2 if options.quick else SHARDS)
        cases = run(files, len(SEEDS) * (1 if options.quick else 3))
    show(cases, console)
    ours = [case for case in cases if case["case"]["name"].startswith("prefetch")]
    usual = next(case for case in ours if case["case"]["name"] == f"prefetch, {prefetch.READERS} readers")
    least = min(case["cached_after"] for case in ours)
    found = [
        Bar("prefetch, times as fast as a plain sequential read", usual["faster_than_sequential"], ">=", 1.0),
        Bar("share of the weights in the page cache after", least, ">=", 0.99),
        Bar("share of them there before", max(c["cached_before"] for c in cases), "<=", 0.01),
    ]
    report.show_bars(found, console)
    overall = {"shard_mib": SHARD_MIB, "usual_readers": prefetch.READERS}
    path = report.write(
        "prefetch", quick=options.quick, seed=SEEDS[0], overall=overall, cases=cases, bars=found
    )
    console.print(f"wrote {path}")


if __name__ == "__main__":
    main()
