"""A rendered gateway's nginx, as a process of the test."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any, Self

import httpx

from tests.integration.servers import PATIENCE, ROOT, nginx_program, wait_until
from tests.ports import free_port
from tokenweir.config.loading import parse
from tokenweir.config.models import Config
from tokenweir.render import Paths, write

HERE = Path(__file__).resolve().parent
OBSERVED = {
    "init_by_lua_block { ": "lua_shared_dict test_applied 1m;\n"
    f'    init_by_lua_block {{ package.path = "{HERE.parent}/?.lua;" .. package.path; ',
    '"gateway.json") }': '"gateway.json"); require("observe") }',
    "init_worker_by_lua_block { ": 'init_worker_by_lua_block { require("observe").start(); ',
    "location = /metrics {": 'location = /applied { content_by_lua_block { require("observe").serve() } }\n'
    "        location = /metrics {",
}
"""What is put into nginx.conf so that the tests see which documents the workers have applied."""
SET_CLOCK = """
        for _, name in ipairs {{ "now", "time" }} do
            local real = ngx[name]
            ngx[name] = function()
                local file = io.open("{path}")
                local ahead = file and file:read("*n") or 0
                if file then file:close() end
                return real() + ahead
            end
        end
        os.time = function() return ngx.time() end
        """
"""The host's wall clock, as the gateway's Lua reads it: ahead by as many seconds as a file says."""
# One client for all: making one reads the system's certificates. Each request has a connection of its own, so
# that any worker may answer.
HTTP = httpx.Client(
    timeout=PATIENCE, verify=False, trust_env=False, limits=httpx.Limits(max_keepalive_connections=0)
)


class GatewayProcess:
    """nginx with the configuration rendered from these members of tokenweir.yaml."""

    def __init__(
        self, folder: Path, redis_port: int, workers: int = 2, clock: Path | None = None, **config: Any
    ) -> None:
        self.folder = folder
        self.clock = clock
        self.port, self.metrics_port = free_port(), free_port()
        document: dict[str, Any] = {
            "listen": {"port": self.port, "metrics_port": self.metrics_port, "workers": workers},
            "redis": {"port": redis_port},
            "gateway_id": "gw-test",
            "limits": {"connections": 1024},
            "backends": [],
        }
        for name, value in config.items():
            current = document.get(name)
            document[name] = {**current, **value} if isinstance(current, dict) else value
        self.config: Config = parse(json.dumps(document), "test", {})
        user = "root" if os.geteuid() == 0 else None
        self.paths = Paths(prefix=folder, lua=ROOT / "lua", user=user)
        self.workers_wanted = workers
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        scheme = "https" if self.config.listen.tls else "http"
        return f"{scheme}://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Renders the files, starts nginx and waits for its workers."""
        write(self.config, self.paths, self.folder)
        self._let_observe()
        self._process = subprocess.Popen(
            [*self._command(), "-g", "daemon off;"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        process = self._process

        def ready() -> bool:
            assert process.poll() is None, f"nginx did not start:\n{self.error_log()}"
            return len(self.workers()) >= self.workers_wanted and self._alive()

        wait_until(ready, what="nginx")
        return self

    def _let_observe(self) -> None:
        text = self.paths.conf.read_text()
        for before, after in OBSERVED.items():
            assert text.count(before) == 1
            text = text.replace(before, after)
        if self.clock:
            begin = "init_by_lua_block { "
            text = text.replace(begin, begin + SET_CLOCK.format(path=self.clock), 1)
        self.paths.conf.write_text(text)

    def _command(self) -> list[str]:
        prefix = self.paths.prefix
        return [
            nginx_program(),
            "-p",
            str(prefix),
            "-c",
            str(self.paths.conf),
            "-e",
            str(prefix / "logs/error.log"),
        ]

    def _alive(self) -> bool:
        try:
            return HTTP.get(f"{self.url}/healthz").status_code == 200
        except httpx.TransportError:
            return False

    def workers(self) -> list[int]:
        """Process ids of the workers, those that drain included."""
        assert self._process
        pid = self._process.pid
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]

    def signal(self, number: int) -> None:
        """Sends a signal to the master."""
        assert self._process
        self._process.send_signal(number)

    def stop(self) -> None:
        """Stops it at once."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process = None

    def error_log(self) -> str:
        """What stands in its error log."""
        path = self.paths.error_log
        return path.read_text(errors="replace") if path.exists() else ""
