"""`render`: writes the gateway's folder (nginx.conf and what nginx's Lua reads at start)."""

from __future__ import annotations

import typer

from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.render import Paths, RenderError, write
from tokenweir.stack.errors import StackError
from tokenweir.stack.settings import read


def render(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Write nginx.conf, gateway.json and the CA bundle from tokenweir.yaml, and print where nginx.conf is."""
    with told():
        settings = read(config)
        settings.state.create()
        try:
            path = write(settings.config, Paths.under(settings.state.root), settings.path.parent)
        except RenderError as error:
            raise StackError(str(error)) from None
        typer.echo(path)
