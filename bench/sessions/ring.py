"""The shipped ring by itself: how even it is, and who moves when a backend comes or goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenweir.luavm import new_runtime

PROGRAM = Path(__file__).with_name("ring.lua")
SIZES = (2, 3, 8, 16, 64, 256, 1000)
SESSIONS_EACH = 3000
MOVED_OF = 20_000


def measure() -> list[dict[str, Any]]:
    """By number of backends: the worst error of a share against its weight, with equal and with mixed
    weights; sessions that moved although their backend stayed, when one came and when one went; ms to build
    it, and the longest slice of that."""
    program = new_runtime().execute(PROGRAM.read_bytes())
    cases = []
    for size in SIZES:
        count = max(40_000, SESSIONS_EACH * size)
        needless = sum(int(program.moved_needlessly(size, MOVED_OF, change)) for change in (-1, 1))
        whole, slice_ms = program.build_ms(size)
        cases.append(
            {
                "case": {"part": "ring", "backends": size},
                "share_error": max(float(program.share_error(size, count, heavy)) for heavy in (1, 4)),
                "moved_needlessly": needless,
                "build_ms": float(whole),
                "longest_slice_ms": float(slice_ms),
            }
        )
    return cases
