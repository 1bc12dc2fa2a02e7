"""The commands under one name."""

from __future__ import annotations

import typer

from tokenweir.cli import check, down, key, provision, render, replay, schema, status, up

app = typer.Typer(
    help="Tokenweir: a load balancer for self-hosted LLM inference.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,
)
app.command("up")(up.up)
app.command("status")(status.status)
app.command("down")(down.down)
app.command("check")(check.check)
app.command("render")(render.render)
app.command("key")(key.key)
app.command("replay")(replay.replay)
app.command("schema")(schema.schema)
app.command("provision", hidden=True)(provision.provision)
