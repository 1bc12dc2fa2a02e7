"""Pages that are so large that taking them apart would hold up everything else the sidecar does.

A usual page is tens of KB and takes under a millisecond. Larger ones are taken apart in threads of their own,
a few at a time, and less often: one exporter that tells of everything must not cost the others their looks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from sidecar.clock import monotonic_ms

LARGE: Final = 128 * 1024
"""Bytes."""
REST: Final = 3.0
"""After one that was large the next look rests for so many times what taking it apart took."""

T = TypeVar("T")
_pool = ThreadPoolExecutor(2, thread_name_prefix="pages")


class PageTime:
    """What the last page of one source took, where it was large; ms."""

    def __init__(self) -> None:
        self.rest_ms = 0.0
        """How long the next look rests at least."""

    async def spend(self, size: int, take_apart: Callable[[], T]) -> T:
        """Take a page of so many bytes apart. Raises what `take_apart` does."""
        if size <= LARGE:
            self.rest_ms = 0.0
            return take_apart()
        began = monotonic_ms()
        try:
            return await asyncio.get_running_loop().run_in_executor(_pool, take_apart)
        finally:
            self.rest_ms = REST * (monotonic_ms() - began)
