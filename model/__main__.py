"""`python -m model`: the commands of `model/cli.py`."""

from __future__ import annotations

from tokenweir.interrupts import ended_by_interrupt

if __name__ == "__main__":
    with ended_by_interrupt("interrupted; nothing was changed"):
        from model.cli import app
    app(prog_name="python -m model")
