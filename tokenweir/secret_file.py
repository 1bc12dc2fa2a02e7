"""Files that hold one secret: an API key, a password, a token."""

from __future__ import annotations

from pathlib import Path

from tokenweir.config.errors import ConfigError


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
