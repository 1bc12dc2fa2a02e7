"""The stack's own Redis: loopback only, two users, nothing kept on disk."""

from __future__ import annotations

import os
import pwd
import shutil
from pathlib import Path

from tokenweir.atomic_file import write_atomically
from tokenweir.stack.credentials import password_files, render_acl
from tokenweir.stack.errors import StackError
from tokenweir.stack.part import Part, Port
from tokenweir.stack.probes import redis_ready
from tokenweir.stack.settings import Settings

CONFIGURATION = """bind {host}
port {port}
protected-mode yes
daemonize no
aclfile {folder}/users.acl
dir {folder}
save ""
appendonly no
maxmemory 256mb
maxmemory-policy noeviction
"""


def _user() -> str | None:
    """The user that Redis runs as, where we are root: Debian's package makes one."""
    if os.getuid() != 0:
        return None
    try:
        return pwd.getpwnam("redis").pw_name
    except KeyError:
        return None


def _private(path: Path, text: str, user: str | None) -> None:
    entry = pwd.getpwnam(user) if user else None
    write_atomically(path, text, 0o600, (entry.pw_uid, entry.pw_gid) if entry else None)


def part(settings: Settings) -> Part:
    """Redis as a part of the stack; writes its configuration."""
    binary = shutil.which("redis-server")
    if binary is None:
        raise StackError("`redis-server` is not installed: apt-get install redis-server, or set `redis.host`")
    redis, state, user = settings.config.redis, settings.state, _user()
    text = CONFIGURATION.format(host=redis.host, port=redis.port, folder=state.redis)
    passwords = password_files(state.secrets)
    acl = render_acl(passwords)
    _private(state.redis / "redis.conf", text, user)
    _private(state.redis / "users.acl", acl, user)
    return Part(
        name="redis",
        title=f"Redis on {redis.host}:{redis.port}",
        argv=[binary, str(state.redis / "redis.conf")],
        environment={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        folder=state.redis,
        log=state.log / "redis.log",
        ports=[Port(redis.host, redis.port, "redis.port")],
        ready=lambda: redis_ready(redis.host, redis.port, "sidecar", passwords["sidecar"]),
        stamp=text + acl,
        user=user,
    )
