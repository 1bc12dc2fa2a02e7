"""`python -m sidecar.agent`: the command of `sidecar/agent/cli.py`."""

from __future__ import annotations

import sys

from tokenweir.interrupts import ended_by_interrupt

if __name__ == "__main__":
    with ended_by_interrupt():
        from sidecar.agent.cli import main
    sys.exit(main())
