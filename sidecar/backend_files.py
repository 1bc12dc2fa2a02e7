"""The files that backends' configurations name: API keys and certificate authorities.

A file that cannot be used is a problem of its backend alone: that one is out of rotation, with the reason,
and comes back when the file does. Which files a backend of the admin API may name is bounded: else whoever
may change backends could have any file of this host read and sent to a server of their choice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from tokenweir.config import ConfigError
from tokenweir.config.models import BackendConfig
from tokenweir.secret_file import read_secret

Stamp = tuple[int, int, int]


@dataclass(frozen=True)
class Read:
    """What the files held."""

    keys: dict[str, str] = field(default_factory=dict)
    """Name of a key file, as configured -> key."""
    problems: dict[str, str] = field(default_factory=dict)
    """Backend id -> why it cannot be used."""


class BackendFiles:
    """Reads the files. `folder` is where relative names start, `own` the folder below which backends of the
    admin API may name files, `bundle` the authorities that nginx was started with."""

    def __init__(self, folder: Path, own: Path, bundle: Path) -> None:
        self.folder = folder
        self._own = own
        self._bundle = bundle
        self._stamps: dict[Path, Stamp | None] = {}

    def read(self, backends: Iterable[BackendConfig], written: Iterable[BackendConfig]) -> Read:
        """Read the files of `backends`; `written` are those of `tokenweir.yaml`, which may name any file."""
        result = Read()
        known = {backend.id: backend for backend in written}
        self._stamps = {self._bundle: _stamp(self._bundle)}
        for backend in backends:
            for path in (backend.api_key_file, backend.tls.ca):
                if path:
                    self._stamps[self.folder / path] = _stamp(self.folder / path)
            try:
                key = self.check(backend, known.get(backend.id))
            except ConfigError as error:
                result.problems[backend.id] = "; ".join(error.problems)
            else:
                if key is not None and backend.api_key_file:
                    result.keys[backend.api_key_file] = key
        return result

    def changed(self) -> bool:
        """Whether a file that was read, or was not there, is another one now."""
        return any(_stamp(path) != stamp for path, stamp in self._stamps.items())

    def check(self, backend: BackendConfig, written: BackendConfig | None) -> str | None:
        """The API key that the backend wants, if any. `written` is what `tokenweir.yaml` says of it. Raises
        ConfigError where a file cannot be used."""
        if backend.secure and backend.tls.ca:
            allowed = written is not None and written.tls.ca == backend.tls.ca
            key = f"backends: {backend.id}: tls.ca"
            self._check_authority(self._path(backend.tls.ca, key, allowed), key)
        if not backend.api_key_file:
            return None
        # Elsewhere than where the file sends it, a key of the operator's is as good as published.
        allowed = (
            written is not None
            and written.api_key_file == backend.api_key_file
            and (written.url, written.tls) == (backend.url, backend.tls)
        )
        key = f"backends: {backend.id}: api_key_file"
        return read_secret(self._path(backend.api_key_file, key, allowed), key)

    def _path(self, name: str, key: str, allowed: bool) -> Path:
        if allowed:
            return self.folder / name
        path, own = (self.folder / name).resolve(), self._own.resolve()
        if not path.is_relative_to(own):
            raise ConfigError(
                name,
                [
                    f"`{key}`: a backend of the admin API may only name files below {own} "
                    f"(admin.files_dir); {name} is not"
                ],
            )
        return path

    def _check_authority(self, path: Path, key: str) -> None:
        """nginx reads its authorities when it starts, so one that it has not read is of no use yet."""
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not a text file"
            raise ConfigError(str(path), [f"`{key}`: {path}: {reason}"]) from None
        try:
            bundle = self._bundle.read_text()
        except FileNotFoundError:
            return  # the gateway runs elsewhere
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(str(path), [f"`{key}`: {self._bundle}: {error}"]) from None
        if text.strip() not in bundle:
            raise ConfigError(
                str(path),
                [
                    f"`{key}`: the gateway does not know {path} yet: name it at a backend of "
                    "tokenweir.yaml and run `make up`"
                ],
            )


def _stamp(path: Path) -> Stamp | None:
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_mtime_ns, facts.st_size, facts.st_ino
