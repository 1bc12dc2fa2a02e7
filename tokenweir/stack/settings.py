"""The configuration that the stack runs with: the user's, and what `up` provides by itself."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tokenweir.atomic_file import write_atomically
from tokenweir.config import Config, ConfigError, load
from tokenweir.config.loading import parse
from tokenweir.stack.credentials import password_files
from tokenweir.stack.state_dir import StateDir, locate, presumed

OWN_REDIS_PORT = 16379
"""Not 6379, so that a Redis of the system and Tokenweir's own do not meet."""


@dataclass(frozen=True)
class Settings:
    """A configuration, where it came from, and the variables that make every part read it alike."""

    path: Path
    config: Config
    state: StateDir
    own_redis: bool
    overrides: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """The environment for the parts."""
        return {**os.environ, **self.overrides}


def runs_own_redis(config: Config) -> bool:
    """Whether `up` starts a Redis: yes, unless the configuration points to one (a host, a user or TLS)."""
    redis = config.redis
    return not ({"host", "gateway_user", "sidecar_user", "tls"} & redis.model_fields_set)


def read(path: Path, text: str | None = None) -> Settings:
    """The settings of the configuration file at `path`; `text` stands in for what it says now. Raises
    ConfigError."""
    path = path.resolve()

    def parsed(environment: Mapping[str, str]) -> Config:
        return load(path, environment) if text is None else parse(text, str(path), environment)

    given = parsed(os.environ)
    state = locate(path, given)
    overrides = {"TOKENWEIR_STATE_DIR": str(state.root)}
    own_redis = runs_own_redis(given)
    if own_redis:
        passwords = password_files(state.secrets)
        port = given.redis.port if "port" in given.redis.model_fields_set else OWN_REDIS_PORT
        overrides |= {
            "TOKENWEIR_REDIS__PORT": str(port),
            "TOKENWEIR_REDIS__GATEWAY_USER": "gateway",
            "TOKENWEIR_REDIS__GATEWAY_PASSWORD_FILE": str(passwords["gateway"]),
            "TOKENWEIR_REDIS__SIDECAR_USER": "sidecar",
            "TOKENWEIR_REDIS__SIDECAR_PASSWORD_FILE": str(passwords["sidecar"]),
        }
    return Settings(path, parsed({**os.environ, **overrides}), state, own_redis, overrides)


def keep(settings: Settings) -> None:
    """Keep a copy of the file as `up` has just applied it; it may hold secrets."""
    write_atomically(settings.state.applied, settings.path.read_text(), 0o600)


def last_applied(path: Path) -> Settings | None:
    """The settings that `up` applied last for this file, whatever it says by now; None where there are
    none. They are looked for in its `state_dir` as far as that can be read."""
    state = presumed(path)
    if state.owner not in {"", str(path.resolve())}:
        return None
    try:
        return read(path, state.applied.read_text())
    except (OSError, ConfigError):
        return None
