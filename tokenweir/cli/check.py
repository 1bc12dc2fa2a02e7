"""`check`: reads tokenweir.yaml as the other commands would, and says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.config import Config, ConfigError
from tokenweir.stack.settings import read


def check(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Check tokenweir.yaml: every key, every value, every file that it names."""
    console = Console(highlight=False)
    with told():
        settings = read(config)
        absent = missing_files(settings.config, settings.path.parent, set(settings.overrides.values()))
        if absent:
            raise ConfigError(str(config), absent)
    given = settings.config
    names = sorted({name for backend in given.backends for name in backend.models or {}})
    console.print(
        f"{config} is in order: {len(given.backends)} backends, policy {given.policy}, "
        f"{len(given.keys)} keys, models {', '.join(names) or '(asked of the backends)'}"
    )


def missing_files(config: Config, folder: Path, own: set[str]) -> list[str]:
    """A problem for each file that the configuration names and that is not there; `own` are made by `up`."""
    named: list[tuple[str, str | None]] = [
        ("admin.token_file", config.admin.token_file),
        ("redis.ca", config.redis.ca),
        ("redis.gateway_password_file", config.redis.gateway_password_file),
        ("redis.sidecar_password_file", config.redis.sidecar_password_file),
    ]
    if config.listen.tls:
        named += [
            ("listen.tls.certificate", config.listen.tls.certificate),
            ("listen.tls.key", config.listen.tls.key),
        ]
    for number, backend in enumerate(config.backends):
        named += [
            (f"backends[{number}].api_key_file", backend.api_key_file),
            (f"backends[{number}].tls.ca", backend.tls.ca),
        ]
    named += [(f"keys[{number}].key_file", item.key_file) for number, item in enumerate(config.keys)]
    return [
        f"`{key}`: no such file: {folder / path}"
        for key, path in named
        if path and path not in own and not (folder / path).is_file()
    ]
