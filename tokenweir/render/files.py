"""Writes the gateway's folder: what nginx and its Lua read at start and at reload."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import ssl
from pathlib import Path
from typing import Any

from tokenweir.config import Config
from tokenweir.render.nginx import RenderError, gateway_name, redis_host, render
from tokenweir.render.paths import Paths

KEYS = "backend_keys.json"
SYSTEM_CA = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))


def _write(path: Path, text: str, mode: int = 0o644) -> None:
    """Replace `path` at once: a reader sees the old text or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(handle, "w") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text)
    partial.replace(path)


def _read(path: str, base: Path, key: str) -> str:
    try:
        return (base / path).read_text()
    except OSError as error:
        raise RenderError(f"`{key}`: {base / path} cannot be read: {error.strerror}") from None


def secret(path: str, base: Path, key: str) -> str:
    """The one line of a file that holds a key or a password. Raises RenderError."""
    text = _read(path, base, key).strip()
    if not text or not text.isprintable():
        raise RenderError(f"`{key}`: {base / path} must hold one line of printable characters")
    return text


def gateway_id(config: Config, paths: Paths) -> str:
    """The gateway's id: the configured one, else one made at the first start and kept in its folder."""
    if config.gateway_id:
        return config.gateway_id
    kept = paths.prefix / "gateway_id"
    if not kept.exists():
        _write(kept, f"{gateway_name()}-{secrets.token_hex(4)}\n")
    return kept.read_text().strip()


def ca_bundle(config: Config, base: Path) -> str:
    """The system's certificates and every CA that a backend or Redis names.

    nginx takes one bundle for all upstreams, so a CA given for one backend is believed for all of them.
    """
    parts = []
    system = [Path(found) for found in [ssl.get_default_verify_paths().cafile] if found]
    for path in [*system, *SYSTEM_CA]:
        if path.exists():
            parts.append(path.read_text())
            break
    else:
        import certifi  # noqa: PLC0415  (only where the system has no bundle)

        parts.append(Path(certifi.where()).read_text())
    named = {backend.tls.ca: backend.id for backend in config.backends if backend.tls.ca}
    for ca, owner in sorted(named.items()):
        parts.append(_read(ca, base, f"backends.{owner}.tls.ca"))
    return "\n".join(parts)


def gateway_document(config: Config, paths: Paths, base: Path) -> dict[str, Any]:
    """gateway.json: what the gateway must know before it has seen Redis. No secret stands in it."""
    redis = config.redis
    if redis.gateway_password_file:
        secret(redis.gateway_password_file, base, "redis.gateway_password_file")
    return {
        "gateway_id": gateway_id(config, paths),
        "state_dir": str(paths.prefix / "keep"),
        "body_dir": str(paths.prefix / "temp" / "body"),
        "backend_keys_file": str(paths.prefix / KEYS),
        "redis": {
            "host": redis_host(redis.host),
            "port": redis.port,
            "db": redis.db,
            "tls": redis.tls,
            "tls_name": redis.host,
            "user": redis.gateway_user,
            "password_file": str((base / redis.gateway_password_file).resolve())
            if redis.gateway_password_file
            else None,
        },
        "idle_ms": config.limits.idle,
    }


def backend_keys(config: Config, base: Path) -> dict[str, str]:
    """Backend id -> the API key that it wants."""
    return {
        backend.id: secret(backend.api_key_file, base, f"backends.{backend.id}.api_key_file")
        for backend in config.backends
        if backend.api_key_file
    }


def write(config: Config, paths: Paths, base: Path, *, modules: list[Path] | None = None) -> Path:
    """Write the gateway's folder and return the path of its nginx.conf.

    `base` is the folder that relative paths of the configuration start from. The backends' keys go into a
    file of mode 0600, read by the master only. `modules`: what nginx loads where it runs on another machine
    than this. Raises RenderError.
    """
    if config.listen.tls:
        tls = config.listen.tls
        config = config.model_copy(
            update={
                "listen": config.listen.model_copy(
                    update={
                        "tls": tls.model_copy(
                            update={"certificate": str(base / tls.certificate), "key": str(base / tls.key)}
                        )
                    }
                )
            }
        )
    if config.redis.ca:
        redis = config.redis.model_copy(update={"ca": str((base / config.redis.ca).resolve())})
        config = config.model_copy(update={"redis": redis})
    text = render(config, paths, modules=modules)
    for folder in ("logs", "temp", "keep"):
        (paths.prefix / folder).mkdir(parents=True, exist_ok=True)
    if paths.user:
        for place in [paths.prefix, *paths.prefix.parents]:
            if place in {Path("/"), Path("/var"), Path("/var/lib")}:
                break
            if place.stat().st_uid == 0 and place.is_relative_to("/var/lib/tokenweir"):
                place.chmod(0o755)
    if paths.lua != paths.lua_source:
        shutil.copytree(paths.lua_source, paths.lua, dirs_exist_ok=True)
    _write(paths.prefix / "ca.pem", ca_bundle(config, base))
    _write(paths.prefix / "gateway.json", json.dumps(gateway_document(config, paths, base), indent=2) + "\n")
    _write(paths.prefix / KEYS, json.dumps(backend_keys(config, base)) + "\n", 0o600)
    _write(paths.conf, text)
    return paths.conf
