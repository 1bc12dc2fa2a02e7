"""Where the gateway's run-time files live, and whether nginx's workers can reach them."""

from __future__ import annotations

import hashlib
import os
import stat
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED_PREFIXES = Path("/var/lib/tokenweir")
"""Where the folder goes when root runs the gateway from a place that only root can enter."""


def reachable(path: Path) -> bool:
    """Whether any user may pass through every existing folder down to `path`."""
    return all(
        place.stat().st_mode & stat.S_IXOTH
        for place in [path, *path.parents]
        if place.exists() and place.is_dir()
    )


@dataclass(frozen=True)
class Paths:
    """The folders of one gateway.

    `prefix` is nginx's prefix: logs/, temp/, nginx.pid, nginx.conf, gateway.json and what the workers keep.
    `lua` holds `tokenweir/*.lua`; `lua_source` is where they come from (copied if workers cannot enter it).
    `user` is who the workers are, None when the master is not root.
    """

    prefix: Path
    lua: Path
    lua_source: Path = ROOT / "lua"
    user: str | None = None

    @classmethod
    def under(cls, state_dir: Path, user: str | None = "www-data") -> Paths:
        """The folders below `state_dir`, or below /var/lib/tokenweir where workers could not reach that.

        Only root's workers are another user; everyone else's run as themselves.
        """
        state_dir = state_dir.resolve()
        source = ROOT / "lua"
        if os.geteuid() != 0 or not user or user == "root":
            return cls(prefix=state_dir / "gateway", lua=source)
        prefix = state_dir / "gateway"
        if not reachable(state_dir):
            name = hashlib.sha256(str(state_dir).encode()).hexdigest()[:12]
            prefix = SHARED_PREFIXES / name / "gateway"
        lua = source if reachable(source) else prefix / "lua"
        return cls(prefix=prefix, lua=lua, user=user)

    @property
    def conf(self) -> Path:
        """The rendered nginx.conf."""
        return self.prefix / "nginx.conf"

    @property
    def backend_keys(self) -> Path:
        """The API keys of the backends, which the sidecar writes and the workers read."""
        return self.prefix / "keys" / "backend-keys.json"

    @property
    def small_model_socket(self) -> Path:
        """Where the small model answers the workers; its folder is closed to everyone else."""
        return self.backend_keys.parent / "small-model.sock"

    @property
    def transfer_socket(self) -> Path:
        """Where the sidecar moves caches for the workers; its folder is closed to everyone else."""
        return self.backend_keys.parent / "transfer.sock"

    @property
    def ca_bundle(self) -> Path:
        """The authorities that nginx believes for its upstreams."""
        return self.prefix / "ca.pem"

    @property
    def pid(self) -> Path:
        """nginx's pid file."""
        return self.prefix / "nginx.pid"

    @property
    def error_log(self) -> Path:
        """nginx's error log."""
        return self.prefix / "logs" / "error.log"

    @property
    def access_log(self) -> Path:
        """The access log, JSON lines."""
        return self.prefix / "logs" / "access.log"
