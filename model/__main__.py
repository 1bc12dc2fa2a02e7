"""`python -m model`: the commands of `model/cli.py`.

What they need takes a second to read. Ctrl-C meanwhile ends the process at once: an exception would show
where in some library it stood, or be taken by that library for an error of its own."""

from __future__ import annotations

import os
import signal
from types import FrameType


def _end(_number: int, _frame: FrameType | None) -> None:
    os.write(2, b"\ninterrupted; nothing was changed\n")
    os._exit(130)


if __name__ == "__main__":
    heard = signal.getsignal(signal.SIGINT) is not signal.SIG_IGN
    if heard:
        signal.signal(signal.SIGINT, _end)
    from model.cli import app

    if heard:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    app(prog_name="python -m model")
