"""`python -m tokenweir`."""

import sys

if __name__ == "__main__":
    try:
        from tokenweir.cli import app

        app(prog_name="tokenweir")
    except KeyboardInterrupt:  # before a command had begun
        sys.exit(130)
