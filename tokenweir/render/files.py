"""Writes the gateway's folder: what nginx and its Lua read at start and at reload."""

from __future__ import annotations

import json
import secrets
import shutil
import ssl
from pathlib import Path
from typing import Any

from tokenweir import backend_keys
from tokenweir.atomic_file import write_atomically
from tokenweir.config import Config, ConfigError
from tokenweir.render.nginx import RenderError, gateway_name, redis_host, render
from tokenweir.render.paths import Paths
from tokenweir.secret_file import read_secret

SYSTEM_CA = (Path("/etc/ssl/certs/ca-certificates.crt"), Path("/etc/pki/tls/certs/ca-bundle.crt"))


def _read(path: str, base: Path, key: str) -> str:
    try:
        return (base / path).read_text()
    except OSError as error:
        raise RenderError(f"`{key}`: {base / path} cannot be read: {error.strerror}") from None


def gateway_id(config: Config, paths: Paths) -> str:
    """The gateway's id: the configured one, else one made at the first start and kept in its folder."""
    if config.gateway_id:
        return config.gateway_id
    kept = paths.prefix / "gateway_id"
    if not kept.exists():
        write_atomically(kept, f"{gateway_name()}-{secrets.token_hex(4)}\n", 0o644)
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
        try:
            read_secret(base / redis.gateway_password_file, "redis.gateway_password_file")
        except ConfigError as error:
            raise RenderError("; ".join(error.problems)) from None
    return {
        "gateway_id": gateway_id(config, paths),
        "state_dir": str(paths.prefix / "keep"),
        "body_dir": str(paths.prefix / "temp" / "body"),
        "backend_keys_file": str(paths.backend_keys),
        "small_model_socket": str(paths.small_model_socket),
        "transfer_socket": str(paths.transfer_socket),
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


def write(config: Config, paths: Paths, base: Path, *, modules: list[Path] | None = None) -> Path:
    """Write the gateway's folder and return the path of its nginx.conf.

    `base` is the folder that relative paths of the configuration start from. The backends' keys are not
    among the files: the sidecar writes them. `modules`: what nginx loads where it runs on another machine
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
    try:
        backend_keys.prepare_folder(paths.backend_keys, paths.user)
    except KeyError:
        raise RenderError(
            f"nginx's workers are to run as {paths.user!r}, and there is no such user"
        ) from None
    write_atomically(paths.ca_bundle, ca_bundle(config, base), 0o644)
    document = json.dumps(gateway_document(config, paths, base), indent=2) + "\n"
    write_atomically(paths.prefix / "gateway.json", document, 0o644)
    write_atomically(paths.conf, text, 0o644)
    return paths.conf
