"""Run a bench by its name: `python -m bench overhead --quick`. Ctrl-C ends it with status 130."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from tokenweir.interrupts import STATUS

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """Return the names of all benches."""
    return sorted(file.parent.name for file in FOLDER.glob("*/__main__.py"))


def main(arguments: list[str]) -> int:
    """Run the bench that the first argument names with the others; returns the exit status."""
    name = arguments[0] if arguments else ""
    if name not in names():
        wrong = f"there is no bench {name!r}" if name else "which bench?"
        sys.stderr.write(f"{wrong}; there are: {', '.join(names())}\n")
        return 2
    sys.argv[1:] = arguments[1:]
    try:
        runpy.run_module(f"bench.{name}", run_name="__main__", alter_sys=True)
    except KeyboardInterrupt:
        sys.stderr.write("\ninterrupted\n")
        return STATUS
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
