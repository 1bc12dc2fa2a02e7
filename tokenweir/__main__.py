"""`python -m tokenweir`."""

from tokenweir.interrupts import ended_by_interrupt

if __name__ == "__main__":
    with ended_by_interrupt():
        from tokenweir.cli import app
    app(prog_name="tokenweir")
