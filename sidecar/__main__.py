"""`python -m sidecar`: the command of `sidecar/cli.py`."""

from __future__ import annotations

import sys

from tokenweir.interrupts import ended_by_interrupt

if __name__ == "__main__":
    with ended_by_interrupt():
        from sidecar.cli import main
    sys.exit(main())
