"""`python -m emulator`: the command of `emulator/cli.py`."""

from __future__ import annotations

import sys

from tokenweir.interrupts import ended_by_interrupt

if __name__ == "__main__":
    with ended_by_interrupt():
        from emulator.cli import main
    sys.exit(main())
