"""How the sidecar's user reaches Redis: the sidecar and the trainer both go by this."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenweir.config.models import Redis as RedisConfig
from tokenweir.secret_file import read_secret


def redis_options(config: RedisConfig, folder: Path, timeout_s: float) -> dict[str, Any]:
    """Arguments of a client of redis-py. Files are relative to `folder`; no call takes longer than
    `timeout_s`. Raises ConfigError where the password's file cannot be used."""
    options: dict[str, Any] = {
        "host": config.host,
        "port": config.port,
        "db": config.db,
        "username": config.sidecar_user,
        "socket_timeout": timeout_s,
        "socket_connect_timeout": timeout_s,
        "protocol": 2,
        # Redis before 7.2 has no CLIENT SETINFO, and an ACL file that names it does not load there.
        "driver_info": None,
    }
    if config.sidecar_password_file:
        options["password"] = read_secret(
            folder / config.sidecar_password_file, "redis: sidecar_password_file"
        )
    if config.tls:
        options |= {"ssl": True, "ssl_ca_certs": config.ca and str(folder / config.ca)}
    return options
