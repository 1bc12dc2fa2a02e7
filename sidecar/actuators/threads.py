"""Threads for what blocks: the runtimes' clients and programs.

They are few and their own: name look-ups and the NVML reader share the default ones, and a fleet that is
restarted must not stop those.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

MOST: Final = 16
T = TypeVar("T")

_pool = ThreadPoolExecutor(MOST, thread_name_prefix="actuator")


async def run(call: Callable[[], T]) -> T:
    """Run a blocking call to its end, whatever happens meanwhile: a container that was stopped to be started
    again is started again though the sidecar is told to end."""
    work = asyncio.get_running_loop().run_in_executor(_pool, call)
    while True:
        try:
            return await asyncio.shield(work)
        except asyncio.CancelledError:
            if work.cancelled():
                raise
