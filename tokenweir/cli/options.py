"""What the commands share: where the configuration is, and how an error is told."""

from __future__ import annotations

import errno
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from tokenweir.config import ConfigError
from tokenweir.stack.errors import StackError

ROOT = Path(__file__).resolve().parents[2]

ConfigPath = Annotated[
    Path,
    typer.Option("--config", "-c", envvar="TOKENWEIR_CONFIG", help="The configuration file."),
]
DEFAULT_CONFIG = ROOT / "tokenweir.yaml"


@contextmanager
def told(interrupted: str = "interrupted") -> Iterator[None]:
    """Errors that a user can mend end the command with their text on standard error and status 1; Ctrl-C
    ends it with `interrupted` and status 130."""
    try:
        yield
    except KeyboardInterrupt:
        sys.stderr.write(f"\n{interrupted}\n")
        raise typer.Exit(130) from None
    except PermissionError as error:
        hint = "; it belongs to another user: run this as that user, or remove it"
        sys.stderr.write(f"error: {error.filename}: {error.strerror}{hint}\n")
        raise typer.Exit(1) from None
    except OSError as error:
        if error.errno == errno.ENOSPC:
            hint = "; free some space there, or set another `state_dir` in tokenweir.yaml"
            sys.stderr.write(f"error: {error.filename or 'a file'}: {error.strerror}{hint}\n")
        else:
            sys.stderr.write(f"error: {error}\n")
        raise typer.Exit(1) from None
    except (ConfigError, StackError) as error:
        sys.stderr.write(f"error: {error}\n")
        raise typer.Exit(1) from None
