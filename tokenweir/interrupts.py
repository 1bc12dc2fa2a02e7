"""Ctrl-C while a program's libraries are still being read, which takes up to a second."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from types import FrameType

STATUS = 130
"""Of a process that Ctrl-C has ended, as shells have it."""


@contextlib.contextmanager
def ended_by_interrupt(told: str = "interrupted") -> Iterator[None]:
    """Inside, Ctrl-C ends the process at once, with this line on standard error: an exception would show
    where in some library it stood, or be taken by that library for an error of its own. Nothing else may be
    under way."""

    def end(_number: int, _frame: FrameType | None) -> None:
        os.write(2, f"\n{told}\n".encode())
        os._exit(STATUS)

    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as it is of a process in the background
        signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
