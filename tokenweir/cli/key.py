"""`key`: makes an API key for a client."""

from __future__ import annotations

import secrets
import sys
from typing import Annotated

import typer

from tokenweir.config.models import hash_key


def key(
    name: Annotated[str, typer.Argument(help="The key's id in headers, logs and metrics.")] = "client",
    stdin: Annotated[bool, typer.Option("--stdin", help="Hash the key on standard input instead.")] = False,
) -> None:
    """Make an API key and print it once, with the lines for tokenweir.yaml, which know only its SHA-256."""
    text = sys.stdin.readline().strip() if stdin else f"tw-{secrets.token_urlsafe(32)}"
    if not text:
        sys.stderr.write("error: no key on standard input\n")
        raise typer.Exit(1)
    if not stdin:
        typer.echo(f"key:    {text}")
    typer.echo(f"sha256: {hash_key(text)}")
    typer.echo(f"\nIn tokenweir.yaml:\n\nkeys:\n  - {{id: {name}, sha256: {hash_key(text)}}}")
