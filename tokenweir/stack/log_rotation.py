"""Keeps the logs of a stack bounded: `python -m tokenweir.stack.log_rotation FOLDER...`, one process a stack.

A log over the limit is copied to `NAME.1` and emptied. All writers append, so they go on at its new end; what
is written between the copy and the emptying is lost.
"""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

MAX_BYTES = 16 * 1024**2
EVERY_S = 5.0


def rotate(folder: Path, max_bytes: int = MAX_BYTES) -> None:
    """One round over the folder's `*.log` files."""
    for path in folder.glob("*.log"):
        if path.stat().st_size > max_bytes:
            shutil.copyfile(path, path.with_name(f"{path.name}.1"))
            with path.open("r+b") as file:
                file.truncate(0)


def main() -> None:
    """Rotate for ever; a full disk or a vanished file does not end it."""
    folders = [Path(argument) for argument in sys.argv[1:]]
    while True:
        for folder in folders:
            try:
                rotate(folder)
            except OSError as error:
                print(f"log rotation: {error}", file=sys.stderr, flush=True)
        time.sleep(EVERY_S)


if __name__ == "__main__":
    main()
