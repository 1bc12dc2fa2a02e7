"""`tw:settings` and the keys of the backends, made of the configuration."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from sidecar.store import write_atomically
from tokenweir.config import Config, ConfigError
from tokenweir.config.models import BackendConfig, KeyConfig, hash_key
from tokenweir.contract.records import KeySettings, Limits, ModelSettings, Settings

KEYS_FILE: Final = "backend-keys.json"


def build(config: Config, folder: Path) -> Settings:
    """The settings document (version 0). Key files are relative to `folder`. Raises ConfigError."""
    return Settings(
        models=[
            ModelSettings(name=model.name, aliases=model.aliases, output_prior=model.output_prior)
            for model in config.models
        ],
        default_model=config.default_model,
        keys=[_key(key, folder) for key in config.keys],
        require_key=bool(config.keys),
        limits=Limits(
            deadline_ms=config.limits.deadline or None,
            idle_ms=config.limits.idle,
            tries=config.limits.tries,
            quarantine_ms=config.limits.quarantine,
        ),
        health=config.health,
        headers=config.headers,
    )


def _key(key: KeyConfig, folder: Path) -> KeySettings:
    return KeySettings(
        id=key.id,
        sha256=key.sha256 or hash_key(read_secret(folder, key.key_file or "", f"keys: {key.id}: key_file")),
        models=key.models,
        max_priority=key.max_priority,
        requests_per_minute=key.requests_per_minute,
        tokens_per_minute=key.tokens_per_minute,
        deadline_ms=key.deadline or None,
    )


def backend_keys(backends: Iterable[BackendConfig], folder: Path) -> dict[str, str]:
    """Backend id -> API key, of those that want one. Raises ConfigError."""
    return {
        backend.id: read_secret(folder, backend.api_key_file, f"backends: {backend.id}: api_key_file")
        for backend in backends
        if backend.api_key_file
    }


def write_backend_keys(keys: dict[str, str], state_dir: Path) -> None:
    """Write the keys for the gateways of this host: a file of mode 0600, never Redis. Raises OSError."""
    path = state_dir / KEYS_FILE
    text = json.dumps(keys, sort_keys=True) + "\n"
    if not path.exists() or path.read_text() != text or path.stat().st_mode & 0o777 != 0o600:
        write_atomically(path, text, 0o600)


def read_secret(folder: Path, name: str, key: str) -> str:
    """The stripped content of a file of the configuration. Raises ConfigError, which names `key`."""
    path = folder / name
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise ConfigError(str(path), [f"`{key}`: {reason}"]) from None
    if not text:
        raise ConfigError(str(path), [f"`{key}`: the file is empty"])
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ConfigError(str(path), [f"`{key}`: the file must hold the key alone, without blanks"])
    return text
