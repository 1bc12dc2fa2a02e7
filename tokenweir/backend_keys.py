"""The API keys that backends want, on their way to the gateway of the same host: a file of mode 0600, never
Redis. The sidecar writes it, nginx's workers read it again and again.

It maps names of key files, as `api_key_file` gives them, to the keys in them. A snapshot says which name a
backend wants, so a key never goes to a backend that it was not meant for, in whatever order the two arrive.
"""

from __future__ import annotations

import json
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from tokenweir.atomic_file import write_atomically


def prepare_folder(path: Path, user: str | None) -> None:
    """Make the folder of the keys file at `path`, closed to all but `user` (None: whoever calls). Raises
    OSError, and KeyError where there is no such user."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.parent.chmod(0o700)
    if user is not None:
        entry = pwd.getpwnam(user)
        for place in (path.parent, path):
            if place.exists():
                os.chown(place, entry.pw_uid, entry.pw_gid)


def write(path: Path, keys: Mapping[str, str]) -> None:
    """Put `keys` (name -> key) into the file, which gets the owner of its folder. Raises OSError."""
    text = json.dumps(dict(keys), sort_keys=True) + "\n"
    if _holds(path, text) or (not keys and not path.exists()):
        return
    if not path.parent.exists():
        prepare_folder(path, None)
    folder = path.parent.stat()
    owner = (folder.st_uid, folder.st_gid) if os.geteuid() == 0 else None
    write_atomically(path, text, 0o600, owner)


def _holds(path: Path, text: str) -> bool:
    try:
        return path.read_text() == text and path.stat().st_mode & 0o777 == 0o600
    except (OSError, UnicodeDecodeError):
        return False
