"""A real Redis that keeps nothing on disk."""

from __future__ import annotations

import shutil
from pathlib import Path

from bench.servers import ports
from bench.servers.process import Process, StartError


class Redis(Process):
    """redis-server on a port of the loopback interface; a restart finds it empty."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        binary = shutil.which("redis-server")
        if not binary:
            raise StartError("redis-server is not installed: apt-get install redis-server")
        self.port = port or ports.free_ports(1)[0]
        folder.mkdir(parents=True, exist_ok=True)
        argv = [binary, "--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(folder)]
        argv += ["--save", "", "--appendonly", "no", "--loglevel", "warning"]
        super().__init__("redis", argv, folder / "redis.log")
        self.wait_until(lambda: ports.listening(self.port), f"listening on port {self.port}")

    @property
    def url(self) -> str:
        """Address for redis-py."""
        return f"redis://127.0.0.1:{self.port}/0"
