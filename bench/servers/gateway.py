"""A real gateway: nginx with Tokenweir, rendered from a configuration by the product's own command."""

from __future__ import annotations

import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from bench.servers import nginx, ports
from bench.servers.process import StartError

ROOT = Path(__file__).resolve().parents[2]


def write_configuration(folder: Path, configuration: dict[str, Any]) -> Path:
    """Write tokenweir.yaml into `folder`; free ports of the listener and its metrics are filled in."""
    folder.mkdir(parents=True, exist_ok=True)
    listen = configuration.setdefault("listen", {})
    port, metrics_port = ports.free_ports(2)
    listen.setdefault("port", port)
    listen.setdefault("metrics_port", metrics_port)
    path = folder / "tokenweir.yaml"
    path.write_text(yaml.safe_dump(configuration))
    return path


def _render(configuration: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "tokenweir.render", "--config", str(configuration)]
    done = subprocess.run(
        [*command, "--state-dir", str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise StartError(f"the gateway could not be rendered: {done.stderr}")
    return Path(done.stdout.strip().splitlines()[-1])


class Gateway(nginx.Nginx):
    """nginx with Tokenweir; `folder` must be one that nginx's workers can enter."""

    def __init__(
        self,
        configuration: Path,
        folder: Path,
        name: str = "gateway",
        edit: Callable[[str], str] = lambda text: text,
    ) -> None:
        """`edit` changes the rendered nginx.conf, for a bench that looks inside a worker."""
        listen = yaml.safe_load(configuration.read_text())["listen"]
        self.metrics_port = int(listen["metrics_port"])
        rendered = _render(configuration, folder)
        rendered.write_text(edit(rendered.read_text()))
        super().__init__(name, rendered, int(listen["port"]))

    def wait_ready(self, seconds: float = 20) -> None:
        """Wait until the gateway has a snapshot and a backend that it may use."""
        self.wait_until(lambda: self._status("/readyz") == 200, "ready", seconds)

    def _status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=2) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def metrics(self) -> dict[str, float]:
        """Return the gateway's own metrics: `name{labels}` -> value."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5) as answer:
            lines = answer.read().decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def error_log(self) -> str:
        """Return what nginx wrote into its error log."""
        path = self.configuration.parent / "logs" / "error.log"
        return path.read_text(errors="replace") if path.exists() else ""
