"""An emulated GPU server in a process of its own."""

from __future__ import annotations

import json
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.servers import ports
from bench.servers.gateway import ROOT
from bench.servers.process import Process, StartError


@dataclass(frozen=True)
class EngineKind:
    """What is emulated."""

    gpu: str = "A100-80G"
    model: str = "llama-3-8b"
    kind: str = "preempt"
    speed: float = 1.0
    capacity: int | None = None
    """KV tokens; None: what the facts say."""
    startup_s: float = 0.0
    """Time to load the model; until then it answers 503."""
    name: str = ""
    """Of the model, for clients; empty: `model`."""
    precision: str = "fp16"


class Engine(Process):
    """`python -m emulator`; call `wait_ready` before use."""

    def __init__(self, name: str, emulated: EngineKind, folder: Path) -> None:
        # Nobody else gets the port while the engine is down: in some benches it starts much later.
        self._kept = ports.keep_port()
        self.port: int = self._kept.getsockname()[1]
        argv = [sys.executable, "-m", "emulator", "--port", str(self.port)]
        argv += ["--gpu", emulated.gpu, "--model", emulated.model, "--kind", emulated.kind]
        self._journal = folder / f"{name}.journal"
        argv += ["--speed", str(emulated.speed), "--journal", str(self._journal)]
        argv += ["--startup-seconds", str(emulated.startup_s)]
        argv += ["--precision", emulated.precision]
        if emulated.capacity is not None:
            argv += ["--capacity", str(emulated.capacity)]
        if emulated.name:
            argv += ["--served-model-name", emulated.name]
        super().__init__(name, argv, folder / f"{name}.log", cwd=ROOT)

    @property
    def url(self) -> str:
        """Base address."""
        return f"http://127.0.0.1:{self.port}"

    def wait_ready(self, seconds: float = 30) -> None:
        """Wait until the engine says that it is healthy."""
        end = time.monotonic() + seconds
        while True:
            try:
                with urllib.request.urlopen(self.url + "/health", timeout=2):
                    return
            except OSError:
                if time.monotonic() > end:
                    raise StartError(f"{self.name} is not healthy{self.tail()}") from None
            time.sleep(0.05)

    def executed(self) -> list[str]:
        """Return the ids of the requests that this engine began in all its lives, one entry each time."""
        return self._journal.read_text().split() if self._journal.exists() else []

    def fail(self, on: bool) -> None:
        """Let the engine answer every request with 500 at once, or no more."""
        self.call("/admin/fault", {"kind": "fail_fast", "status": 500} if on else {"kind": "none"})

    def call(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """GET, or POST a JSON body, and return the JSON answer."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            self.url + path, data=data, headers={"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(request, timeout=5) as answer:
            return json.loads(answer.read() or b"null")
