"""`python -m tokenweir`."""

from tokenweir.cli import app

if __name__ == "__main__":
    app(prog_name="tokenweir")
