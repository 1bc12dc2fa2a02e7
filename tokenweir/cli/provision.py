"""`provision`: what must be there before the containers of docker-compose.yml start."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.config import load
from tokenweir.render import Paths, RenderError, write
from tokenweir.render.nginx import DYNAMIC_MODULES
from tokenweir.stack.credentials import ensure_secret, render_acl
from tokenweir.stack.errors import StackError

MODULES = [Path("/usr/lib/nginx/modules") / name for name in DYNAMIC_MODULES]
"""Where Debian's nginx has its Lua module, in the gateway's image."""


def provision(
    redis_users: Annotated[Path, typer.Option(help="Folder for Redis's ACL file.")],
    lua: Annotated[Path, typer.Option(help="Where the gateway's image has the Lua files.")],
    config: ConfigPath = DEFAULT_CONFIG,
) -> None:
    """Make the missing secrets, Redis's users, and the gateway's files, whose logs go to its output."""
    with told():
        given = load(config)
        if given.admin.token_file:
            ensure_secret(Path(given.admin.token_file))
        gateway, sidecar = given.redis.gateway_password_file, given.redis.sidecar_password_file
        if gateway and sidecar:
            acl = redis_users / "users.acl"
            acl.write_text(render_acl({"gateway": Path(gateway), "sidecar": Path(sidecar)}))
            acl.chmod(0o644)
        paths = replace(Paths.under(Path(given.state_dir)), lua=lua, lua_source=lua)
        try:
            write(given, paths, config.resolve().parent, modules=MODULES)
        except RenderError as error:
            raise StackError(str(error)) from None
        for log, stream in ((paths.access_log, "/dev/stdout"), (paths.error_log, "/dev/stderr")):
            log.unlink(missing_ok=True)
            log.symlink_to(stream)
        typer.echo(f"provisioned {paths.prefix}")
