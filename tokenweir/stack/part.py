"""One process of the stack, before it is started."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Port:
    """An address that a part listens on, and the key of `tokenweir.yaml` that changes it."""

    host: str
    number: int
    key: str


@dataclass(frozen=True)
class Part:
    """What to run and how to tell that it is ready.

    `ready` returns None, or in a few words what is still awaited. `stamp` stands for everything beside the
    command that the process reads at its start: where it changes, the process is started anew, or gets
    `reload_signal` if it has one. `log` gets what the process writes to its output; `other_logs` are files
    that it writes itself, shown too when it fails to start.
    """

    name: str
    title: str
    argv: list[str]
    environment: Mapping[str, str]
    folder: Path
    log: Path
    ports: list[Port]
    ready: Callable[[], str | None]
    other_logs: tuple[Path, ...] = ()
    stamp: str = ""
    user: str | None = None
    reload_signal: int | None = None
    stop_signal: int = signal.SIGTERM
    grace_s: float = 10
    needs: frozenset[str] = field(default_factory=frozenset)

    @property
    def digest(self) -> str:
        """Changes whenever the running process would have been started otherwise."""
        settings = {key: value for key, value in self.environment.items() if key.startswith("TOKENWEIR_")}
        text = json.dumps([self.argv, settings, self.user, self.stamp], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()


def contents_stamp(folder: Path, *names: str | None) -> str:
    """Changes whenever the content of one of the files does; relative names start at `folder`. A file that
    cannot be read counts as empty: whoever needs it says so."""
    digest = hashlib.sha256()
    for name in filter(None, names):
        try:
            content = (folder / name).read_bytes()
        except OSError:
            content = b""
        digest.update(f"{name}:{len(content)}:".encode() + content)
    return digest.hexdigest()


def sources_stamp(root: Path, *folders: str) -> str:
    """Changes whenever a source file under the folders does, so that an update of the code is picked up."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in {".py", ".lua", ".j2", ".html", ".js", ".css"}:
                facts = path.stat()
                digest.update(f"{path}:{facts.st_mtime_ns}:{facts.st_size}\n".encode())
    return digest.hexdigest()
