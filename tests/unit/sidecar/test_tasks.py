"""Ending tasks for certain."""

from __future__ import annotations

import asyncio
import contextlib

from sidecar.tasks import cancel


async def test_a_task_that_swallows_its_first_cancellation_ends_all_the_same():
    async def stubborn():
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await asyncio.sleep(60)

    task = asyncio.create_task(stubborn())
    await asyncio.sleep(0)
    await asyncio.wait_for(cancel([task]), 3)
    assert task.cancelled()


async def test_nothing_to_cancel_is_no_error():
    await cancel([])
