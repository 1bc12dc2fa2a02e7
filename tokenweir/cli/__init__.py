"""The command line: `python -m tokenweir COMMAND`, one file a command."""

from tokenweir.cli.app import app

__all__ = ["app"]
