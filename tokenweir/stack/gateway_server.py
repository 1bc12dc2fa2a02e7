"""The gateway (nginx) as a part of the stack."""

from __future__ import annotations

import signal
import subprocess
from pathlib import Path

from tokenweir.render import Paths, RenderError, write
from tokenweir.render.nginx import metrics_port
from tokenweir.render.nginx_program import find_nginx
from tokenweir.stack.errors import StackError
from tokenweir.stack.part import Part, Port, contents_stamp, sources_stamp
from tokenweir.stack.probes import bracketed, http_ready, url_host
from tokenweir.stack.settings import Settings

ROOT = Path(__file__).resolve().parents[2]


EARLY_LOG = ("-e", "logs/error.log")
"""Until it has read its configuration, nginx logs to a place under /var/log that not every user may write."""
READ_AT_START = ("nginx.conf", "gateway.json", "ca.pem")


def base_url(settings: Settings) -> str:
    """What an OpenAI client on this machine takes as its base URL, less `/v1`."""
    listen = settings.config.listen
    return f"{'https' if listen.tls else 'http'}://{url_host(listen.address)}:{listen.port}"


def metrics_url(settings: Settings) -> str:
    """The gateway's metrics, for a client on this machine."""
    return f"http://127.0.0.1:{metrics_port(settings.config)}/metrics"


def nginx_binary() -> str:
    """Debian's nginx or OpenResty's."""
    found = find_nginx()
    if found is None:
        raise StackError("nginx is not installed: apt-get install nginx libnginx-mod-http-lua lua-cjson")
    return found


def check_rendered(binary: str, paths: Paths) -> None:
    """`nginx -t` on the rendered configuration; its words are the error."""
    result = subprocess.run(
        [binary, "-t", "-q", "-p", str(paths.prefix), "-c", str(paths.conf), *EARLY_LOG],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    if result.returncode != 0:
        raise StackError(
            f"nginx refuses the configuration rendered from tokenweir.yaml:\n{result.stderr.strip()}"
        )


def part(settings: Settings) -> Part:
    """nginx in the foreground; a change of its configuration reloads it, and streams go on."""
    binary = nginx_binary()
    paths = Paths.under(settings.state.root)
    try:
        write(settings.config, paths, settings.path.parent)
    except RenderError as error:
        raise StackError(str(error)) from None
    check_rendered(binary, paths)
    listen, redis = settings.config.listen, settings.config.redis
    secrets = [redis.gateway_password_file, redis.ca]
    if listen.tls:
        secrets += [listen.tls.certificate, listen.tls.key]
    alive = f"{base_url(settings)}/healthz"
    return Part(
        name="gateway",
        title=f"gateway (nginx) on {bracketed(listen.address)}:{listen.port}",
        argv=[binary, "-p", str(paths.prefix), "-c", str(paths.conf), *EARLY_LOG, "-g", "daemon off;"],
        environment=settings.environment,
        folder=ROOT,
        log=settings.state.log / "gateway.log",
        other_logs=(paths.error_log,),
        ports=[
            Port(listen.address, listen.port, "listen.port"),
            Port("127.0.0.1", metrics_port(settings.config), "listen.metrics_port"),
        ],
        ready=lambda: http_ready(alive, verify=False),
        stamp="".join((paths.prefix / name).read_text() for name in READ_AT_START)
        + contents_stamp(settings.path.parent, *secrets)
        + sources_stamp(ROOT, "lua"),
        reload_signal=signal.SIGHUP,
        stop_signal=signal.SIGQUIT,
    )
