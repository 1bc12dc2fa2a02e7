"""A real sidecar."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path

import yaml

from bench.servers import ports
from bench.servers.gateway import ROOT
from bench.servers.process import Process


def admin_port(configuration: Path) -> int:
    """Return the port of the admin API that a tokenweir.yaml names."""
    return int(yaml.safe_load(configuration.read_text())["admin"]["port"])


class Sidecar(Process):
    """`python -m sidecar` with a configuration; ready when its admin API listens."""

    def __init__(self, configuration: Path, folder: Path) -> None:
        self.port = admin_port(configuration)
        argv = [sys.executable, "-m", "sidecar", "--config", str(configuration)]
        super().__init__("sidecar", argv, folder / "sidecar.log", cwd=ROOT)
        self.wait_until(lambda: ports.listening(self.port), f"listening on port {self.port}", 30)

    def get(self, path: str) -> bytes:
        """Return the answer of one GET of the admin API."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
            body: bytes = answer.read()
        return body
