"""`schema`: the JSON Schema of tokenweir.yaml, for editors."""

from __future__ import annotations

import typer

from tokenweir.config import schema as config_schema


def schema() -> None:
    """Print the JSON Schema of tokenweir.yaml."""
    typer.echo(config_schema.render(), nl=False)
