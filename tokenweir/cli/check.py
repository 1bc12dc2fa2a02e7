"""`check`: reads tokenweir.yaml as the other commands would, and says what is wrong with it."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape

from tokenweir import facts
from tokenweir.cli.options import DEFAULT_CONFIG, ConfigPath, told
from tokenweir.config import Config, ConfigError
from tokenweir.config.servers import is_loopback
from tokenweir.contract.names import PRECISIONS
from tokenweir.contract.records import Role
from tokenweir.render import RenderError
from tokenweir.render.nginx import metrics_port
from tokenweir.secret_file import read_secret, read_token
from tokenweir.stack.settings import Settings, read


def check(config: ConfigPath = DEFAULT_CONFIG) -> None:
    """Check tokenweir.yaml: every key, every value, every file that it names."""
    console = Console(highlight=False)
    with told():
        settings = read(config)
        problems = missing_files(settings.config, settings.path.parent, set(settings.overrides.values()))
        problems += unusable_secrets(settings.config, settings.path.parent)
        problems += shared_ports(settings)
        if problems:
            raise ConfigError(str(config), problems)
    given = settings.config
    names = sorted({name for backend in given.backends for name in backend.models or {}})
    console.print(
        f"{config} is in order: {counted(len(given.backends), 'backend')}, policy {given.policy}, "
        f"{counted(len(given.keys), 'key')}, models {', '.join(names) or '(asked of the backends)'}",
        soft_wrap=True,
    )
    for note in notes(given):
        console.print(f"[yellow]note[/]: {escape(note)}", soft_wrap=True)


def notes(config: Config) -> list[str]:
    """What is no error, and yet hardly meant so."""
    found = []
    if not config.backends:
        found.append(
            "`backends` is empty: requests are refused until the admin API adds one; "
            "for example: backends: [http://10.0.0.11:8000]"
        )
    if not is_loopback(config.listen.address) and not config.keys:
        found.append(
            f"`listen.address` {config.listen.address} lets other machines in, and there are no `keys`: "
            f"whoever reaches port {config.listen.port} is served; "
            "`.venv/bin/python -m tokenweir key NAME` makes a key"
        )
    if "*" in config.listen.cors_origins and not config.keys:
        found.append(
            "`listen.cors_origins` has '*', and there are no `keys`: any page that somebody who reaches port "
            f"{config.listen.port} opens in a browser is served; for example: cors_origins: [https://chat.example]"
        )
    for number, backend in enumerate(config.backends):
        try:
            facts.gpu(backend.gpu or "CPU")
        except facts.UnknownFactError as error:
            found.append(f"`backends[{number}].gpu`: {error}; costs begin as another's and are learned")
        if backend.precision.strip().lower() not in {"", *PRECISIONS}:
            found.append(
                f"`backends[{number}].precision`: {backend.precision!r} is no known one, so it is never "
                f"preferred; known are {', '.join(sorted(set(PRECISIONS.values())))}"
            )
    for number, model in enumerate(config.models):
        try:
            facts.model(model.facts or "llama-3-8b")
        except facts.UnknownFactError as error:
            found.append(f"`models[{number}].facts`: {error}; costs begin as another's and are learned")
    found += unserved(config)
    spares = [backend for backend in config.backends if backend.role is Role.FALLBACK]
    if all(backend.models for backend in spares):
        served = {name for backend in spares for name in backend.models or {}}
        found += [
            f"`models[{number}].fallback`: no backend of the role `fallback` has {model.fallback!r}"
            for number, model in enumerate(config.models)
            if model.fallback and model.fallback not in served
        ]
    return found


def unserved(config: Config) -> list[str]:
    """A note for each name of a model that no backend has, where all backends are told theirs."""
    if not config.backends or not all(backend.models for backend in config.backends):
        return []
    told = {name for backend in config.backends for name in backend.models or {}}
    told |= {alias for model in config.models for alias in model.aliases if model.name in told}
    named = [("default_model", config.default_model)]
    named += [(f"paths.{prefix}", name) for prefix, name in config.paths.items()]
    named += [
        (f"keys[{number}].models", name)
        for number, key in enumerate(config.keys)
        for name in key.models or []
    ]
    return [
        f"`{key}`: no backend has {name!r}; they have {', '.join(sorted(told))}"
        for key, name in named
        if name and name not in told
    ]


def counted(number: int, thing: str) -> str:
    """`1 backend`, `2 backends`."""
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def shared_ports(settings: Settings) -> list[str]:
    """A problem for each port that two parts of this machine would listen on."""
    config = settings.config
    try:
        metrics = metrics_port(config)
    except RenderError as error:
        return [str(error)]
    found = [
        ("listen.port", config.listen.port),
        ("listen.metrics_port", metrics),
        ("admin.port", config.admin.port),
    ]
    if settings.own_redis:
        found.append(("redis.port", config.redis.port))
    found += [
        (f"backends[{number}].url", backend.port)
        for number, backend in enumerate(config.backends)
        if backend.emulated
    ]
    first: dict[int, str] = {}
    return [
        f"`{key}`: port {port} is `{first[port]}` too; give one of them another"
        for key, port in found
        if first.setdefault(port, key) != key
    ]


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


def unusable_secrets(config: Config, folder: Path) -> list[str]:
    """A problem for each file that is there and whose secret neither the sidecar nor a backend could take."""
    readers = [("admin.token_file", config.admin.token_file, read_token)]
    readers += [
        (f"keys[{number}].key_file", key.key_file, read_secret) for number, key in enumerate(config.keys)
    ]
    readers += [
        (f"backends[{number}].api_key_file", backend.api_key_file, read_secret)
        for number, backend in enumerate(config.backends)
    ]
    found = []
    for key, path, read_file in readers:
        if path and (folder / path).is_file():
            try:
                read_file(folder / path, key)
            except ConfigError as error:
                found += error.problems
    return found
