"""The passwords of the two Redis users, and the ACL file that knows only their hashes."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from tokenweir.config.errors import ConfigError

USERS = ("gateway", "sidecar")
TEMPLATE = Path(__file__).resolve().parents[2] / "deploy/redis/users.acl"


def password_files(folder: Path) -> dict[str, Path]:
    """Where the passwords of the Redis users are kept."""
    return {user: folder / f"redis-{user}" for user in USERS}


def ensure_secret(path: Path) -> str:
    """The secret in `path`, made at the first call; the file is readable by its owner alone."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        text = path.read_text().strip()
        if len(text) < 16:
            raise ConfigError(str(path), ["holds no secret; remove the file and start again"]) from None
        return text
    with os.fdopen(descriptor, "w") as file:
        text = secrets.token_urlsafe(32)
        file.write(text)
    return text


def render_acl(passwords: Mapping[str, Path]) -> str:
    """The shipped ACL file with the hashes of the users' passwords, which are made where they are missing."""
    text = TEMPLATE.read_text()
    for user in USERS:
        digest = hashlib.sha256(ensure_secret(passwords[user]).encode()).hexdigest()
        text = text.replace(f"{{{user}_sha256}}", digest)
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
