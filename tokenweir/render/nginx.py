"""nginx.conf from the configuration. No string of the configuration can become a directive."""

from __future__ import annotations

import ipaddress
import os
import re
import resource
import socket
from collections.abc import Iterable
from pathlib import Path

from tokenweir.config import Config
from tokenweir.render.nginx_program import nginx_version
from tokenweir.render.paths import ROOT, Paths

TEMPLATE = ROOT / "nginx" / "nginx.conf.j2"
MODULE_FOLDERS = (Path("/usr/lib/nginx/modules"), Path("/usr/lib64/nginx/modules"))
DYNAMIC_MODULES = ("ndk_http_module.so", "ngx_http_lua_module.so")
LOG_LEVELS = {"debug": "info", "info": "notice", "warning": "warn", "error": "error"}
"""nginx's own debug level would log request bytes."""

OWN_HEADERS = (
    "X-Tokenweir-Backend",
    "X-Tokenweir-Predicted-Tokens",
    "X-Tokenweir-Wait-Ms",
    "X-Tokenweir-Degraded",
)

SHARED_DICTS = {
    "tokenweir_documents": "64m",  # documents as they came
    "tokenweir_handover": "64m",  # what draining workers hand over, which may fill it
    "tokenweir_metrics": "8m",  # counters; nothing here may be evicted, so nothing else lives here
    "tokenweir_limits": "8m",  # use per API key and minute; larger where there are many keys
    "tokenweir_quarantine": "4m",  # hashes of prompts that met crashes
}


LONGER_HEADERS = (1, 23, 0)
HTTP2_DIRECTIVE = (1, 25, 1)
"""The first nginx that knows the directive `http2`."""

EARLY_HINTS = (1, 29, 0)
"""The first nginx that sends early hints on HTTP/2, where `early_hints` allows it."""

LIMITS_KEYS_PER_MIB = 1024
"""Two counts each of up to four minutes, 128 bytes a count."""


def shared_dicts(config: Config) -> dict[str, str]:
    """The gateway's shared memory zones and their sizes, with room for the use of every key."""
    return SHARED_DICTS | {"tokenweir_limits": f"{8 + len(config.keys) // LIMITS_KEYS_PER_MIB}m"}


CAP_SYS_RESOURCE = 24
"""Its bit in a capability set, from linux/capability.h."""


class RenderError(Exception):
    """A value of the configuration cannot be written into nginx.conf."""


def quoted(value: object) -> str:
    """`value` as one quoted nginx string.

    Raises RenderError for what nginx's syntax cannot carry: control characters, and `$` (a variable).
    """
    text = str(value)
    if re.search(r"[\x00-\x1f\x7f]", text):
        raise RenderError(f"{text!r}: control characters cannot stand in nginx.conf")
    if "$" in text:
        raise RenderError(f"{text!r}: `$` cannot stand in nginx.conf; use a path without it")
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def listen_address(address: str, port: int) -> str:
    """What `listen` takes: `127.0.0.1:8080`, `[::]:8080`.

    Raises RenderError where the address is neither an IP address nor a plain host name.
    """
    bare = address.removeprefix("[").removesuffix("]")
    try:
        parsed = ipaddress.ip_address(bare)
    except ValueError:
        if not re.fullmatch(r"[A-Za-z0-9_]([A-Za-z0-9._-]*[A-Za-z0-9_])?", bare):
            raise RenderError(
                f"`listen.address` {address!r} is neither an IP address nor a host name; for example 0.0.0.0"
            ) from None
        return f"{bare}:{port}"
    return f"[{parsed}]:{port}" if parsed.version == 6 else f"{parsed}:{port}"


def listens(address: str, port: int) -> list[str]:
    """What nginx listens on. `::` is every address of this machine, as 0.0.0.0 is every one of IPv4: nginx
    would take it for those of IPv6 alone. Raises RenderError, as above."""
    everywhere = address.strip("[]") == "::"
    return [listen_address(one, port) for one in (["::", "0.0.0.0"] if everywhere else [address])]  # noqa: S104


def dynamic_modules(folders: Iterable[Path] = MODULE_FOLDERS) -> list[Path]:
    """Debian's dynamic modules to load; none where nginx has Lua built in (OpenResty)."""
    for folder in folders:
        found = [folder / name for name in DYNAMIC_MODULES if (folder / name).exists()]
        if len(found) == len(DYNAMIC_MODULES):
            return found
    return []


def is_address(host: str) -> bool:
    """Whether `host` is an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def name_servers(resolv_conf: Path = Path("/etc/resolv.conf")) -> list[str]:
    """The system's name servers as `resolver` takes them."""
    servers = []
    for line in resolv_conf.read_text().splitlines() if resolv_conf.exists() else []:
        fields = line.split()
        if len(fields) >= 2 and fields[0] == "nameserver":
            address = fields[1].partition("%")[0]
            if is_address(address):
                servers.append(f"[{address}]" if ":" in address else address)
    return servers


def may_raise_limits(status: Path = Path("/proc/self/status")) -> bool:
    """Whether this process, and so the nginx that it starts, has the capability CAP_SYS_RESOURCE."""
    try:
        line = next(line for line in status.read_text().splitlines() if line.startswith("CapEff:"))
    except (OSError, StopIteration):
        return os.geteuid() == 0
    return bool(int(line.split()[1], 16) >> CAP_SYS_RESOURCE & 1)


def open_files(connections: int) -> int:
    """Open files that a worker may need: a client and an upstream per request, and some of its own.

    The hard limit bounds it for all who may not raise that: everyone but root, and root in most containers.
    """
    wanted = connections * 2 + 1024
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if may_raise_limits() or hard == resource.RLIM_INFINITY:
        return wanted
    return min(wanted, hard)


def redis_host(host: str) -> str:
    """The host as the gateway connects to it: a name that only the hosts file knows is resolved here."""
    if is_address(host):
        return host
    if host == "localhost":
        return "127.0.0.1"
    try:
        hosts = Path("/etc/hosts").read_text()
    except OSError:
        return host
    for line in hosts.splitlines():
        fields = line.partition("#")[0].split()
        if host in fields[1:] and is_address(fields[0]):
            return fields[0]
    return host


def metrics_port(config: Config) -> int:
    """Loopback port of the gateway's /metrics: the configured one, else the listen port + 1000."""
    port = config.listen.metrics_port or config.listen.port + 1000
    if port > 65535:
        raise RenderError(f"`listen.metrics_port`: {port} is no port; set it, for example to 9080")
    return port


def http2_form(version: tuple[int, int, int] | None) -> str:
    """How this nginx is told to offer HTTP/2: by the directive `http2`, or by a word of `listen`.

    The word is understood by all; newer ones warn of it.
    """
    return "directive" if version is not None and version >= HTTP2_DIRECTIVE else "word"


def sends_early_hints(version: tuple[int, int, int] | None) -> bool:
    """Whether this nginx can send early hints of its own, on HTTP/2 too."""
    return version is not None and version >= EARLY_HINTS


def request_pool(version: tuple[int, int, int] | None) -> int:
    """Bytes of nginx's pool of a request: what one takes that waits, which would take a second pool else.

    Measured by `make bench-buffer` on nginx 1.22. Since 1.23 each place of a header, of which nginx makes 44
    for a request, takes 8 bytes more.
    """
    return 5888 if version is not None and version < LONGER_HEADERS else 6400


def render(config: Config, paths: Paths, *, modules: list[Path] | None = None) -> str:
    """The text of nginx.conf.

    `modules`: what to load instead of what this machine's nginx needs. Raises RenderError.
    """
    import jinja2  # noqa: PLC0415  (takes long, and most commands render nothing)

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["quoted"] = quoted
    if paths.user is not None and not re.fullmatch(r"[a-z_][a-z0-9_-]*", paths.user):
        raise RenderError(f"{paths.user!r} is no user name")
    files = open_files(config.limits.connections)
    host = redis_host(config.redis.host)
    version = nginx_version()
    http2 = http2_form(version) if config.listen.tls and config.listen.tls.http2 else ""
    return environment.from_string(TEMPLATE.read_text()).render(
        modules=dynamic_modules() if modules is None else modules,
        user=paths.user,
        workers=config.listen.workers,
        files=files,
        connections=min(config.limits.connections, max(64, files - 512)),
        threads=True,
        drain_ms=config.limits.drain,
        log_level=LOG_LEVELS[config.log.level],
        body_max=config.limits.body_max,
        body_memory=config.limits.body_memory,
        access_log=config.log.access,
        lua_path=f"{paths.lua}/?.lua;{paths.lua}/?/init.lua;;",
        shared=shared_dicts(config).items(),
        resolvers=[] if is_address(host) else name_servers(),
        redis_ca=(config.redis.ca or paths.ca_bundle) if config.redis.tls else None,
        backend_ca=paths.ca_bundle,
        idle_ms=config.limits.idle,
        tries=config.limits.tries,
        own_headers=OWN_HEADERS,
        listens=listens(config.listen.address, config.listen.port),
        trusted_proxies=config.listen.trusted_proxies,
        cors_origins=config.listen.cors_origins,
        tls=config.listen.tls,
        http2=http2,
        early_hints=bool(http2) and sends_early_hints(version),
        request_pool=request_pool(version),
        metrics_port=metrics_port(config),
    )


def gateway_name() -> str:
    """A first name for a gateway: the host's, made fit for an id."""
    text = re.sub(r"[^A-Za-z0-9.-]+", "-", socket.gethostname()).strip("-.")
    return text[:40] or "gateway"
