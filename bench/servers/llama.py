"""A real llama.cpp server with a small model, in a process of its own."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from typing import Final

from bench.servers import ports
from bench.servers.gateway import ROOT
from bench.servers.process import Process

SCRIPT: Final = ROOT / "tests/integration/engines/llama_engine.py"
MODEL: Final = "smollm2"


class LlamaEngine(Process):
    """SmolLM2-135M on one thread, with one KV memory for all slots: when that is full, all in flight fail."""

    def __init__(self, name: str, context: int, slots: int, folder: Path) -> None:
        self.port = ports.free_ports(1)[0]
        argv = [sys.executable, str(SCRIPT), "--port", str(self.port), "--name", MODEL, "--unified"]
        argv += ["--context", str(context), "--slots", str(slots)]
        super().__init__(name, argv, folder / f"{name}.log", cwd=folder)

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://127.0.0.1:{self.port}"

    def wait_ready(self, seconds: float = 60) -> None:
        """Wait until the model is loaded."""
        self.wait_until(self._healthy, "being healthy", seconds)

    def _healthy(self) -> bool:
        try:
            with urllib.request.urlopen(self.url + "/health", timeout=2):
                return True
        except OSError:
            return False
