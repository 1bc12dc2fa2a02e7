"""Where the run-time files are: logs, pid files, passwords, the rendered nginx.conf."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path
from stat import S_IXOTH

from tokenweir.config import Config

SHARED = Path("/var/lib/tokenweir")
_WRITTEN = re.compile(r"""^state_dir:[ \t]*["']?([^"'#\n]+?)["']?[ \t]*(?:#.*)?$""", re.MULTILINE)


@dataclass(frozen=True)
class StateDir:
    """The folders of one running stack; `moved` tells why they are not where the configuration says."""

    root: Path
    moved: str = ""

    @property
    def run(self) -> Path:
        """Pid files and the lock."""
        return self.root / "run"

    @property
    def owner(self) -> str:
        """The configuration file that `up` was last called with for this folder; empty: none."""
        try:
            return (self.run / "configuration").read_text().strip()
        except OSError:
            return ""

    @property
    def applied(self) -> Path:
        """The configuration as it was when `up` last applied it."""
        return self.run / "applied.yaml"

    @property
    def log(self) -> Path:
        """What the parts write to standard output and error, and the access log."""
        return self.root / "log"

    @property
    def secrets(self) -> Path:
        """Generated passwords, readable by their owner alone."""
        return self.root / "secrets"

    @property
    def redis(self) -> Path:
        """Redis's configuration and users."""
        return self.root / "redis"

    @property
    def gateway(self) -> Path:
        """nginx's prefix: nginx.conf, gateway.json, logs, temporary files."""
        return self.root / "gateway"

    def create(self) -> None:
        """Make the folders."""
        self.root.mkdir(mode=0o755, parents=True, exist_ok=True)
        for folder in (self.run, self.log, self.redis):
            folder.mkdir(mode=0o755, exist_ok=True)
        self.secrets.mkdir(mode=0o700, exist_ok=True)


def _closed_ancestor(path: Path) -> Path | None:
    """The first folder on the way to `path` that other users cannot pass."""
    for folder in (path, *path.parents):
        try:
            if not folder.stat().st_mode & S_IXOTH:
                return folder
        except FileNotFoundError:
            continue
    return None


def locate(config_path: Path, config: Config) -> StateDir:
    """The state folder of this configuration.

    As root, nginx's workers and Redis run as users of their own, which must reach their files: where a folder
    on the way is closed to them (a clone under /root), the state moves to /var/lib/tokenweir.
    """
    wanted = (config_path.resolve().parent / config.state_dir).resolve()
    if os.getuid() == 0 and (closed := _closed_ancestor(wanted)):
        digest = hashlib.sha256(str(wanted).encode()).hexdigest()[:12]
        return StateDir(SHARED / digest, f"{closed} is closed to other users")
    return StateDir(wanted)


def presumed(config_path: Path) -> StateDir:
    """The state folder of a configuration that has an error, as far as its line `state_dir` can be read; else
    the default one. What runs there may be another configuration's: see `StateDir.owner`."""
    written = os.environ.get("TOKENWEIR_STATE_DIR", "")
    try:
        found = _WRITTEN.search(config_path.read_text(errors="replace"))
    except OSError:
        found = None
    if not written and found:
        written = found[1]
    return locate(config_path, Config.model_validate({"state_dir": written}) if written else Config())
