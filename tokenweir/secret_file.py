"""Files that hold one secret: an API key, a password, a token."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tokenweir.config.errors import ConfigError

SHORTEST_TOKEN: Final = 16
"""Characters of the admin API's token, at least."""


def read_secret(path: Path, key: str) -> str:
    """The secret in `path`: one line without blanks. Raises ConfigError, which names `key` of the
    configuration and never what the file holds."""
    try:
        text = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "not a text file"
        raise ConfigError(str(path), [f"`{key}`: {path}: {reason}"]) from None
    if not text:
        raise ConfigError(str(path), [f"`{key}`: {path} is empty"])
    if any(character.isspace() or not character.isprintable() for character in text):
        raise ConfigError(str(path), [f"`{key}`: {path} must hold the secret alone, without blanks"])
    return text


def read_token(path: Path, key: str) -> str:
    """The token of the admin API in `path`. Raises ConfigError, as above, also where it is too short."""
    token = read_secret(path, key)
    if len(token) < SHORTEST_TOKEN:
        raise ConfigError(
            str(path), [f"`{key}`: {path}: the token needs at least {SHORTEST_TOKEN} characters"]
        )
    return token
