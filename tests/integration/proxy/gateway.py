"""A whole gateway under test: rendered from a configuration, with a Redis and scripted upstreams."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import httpx
import redis

from tests.integration.servers import ROOT, free_port, nginx_program, wait_until
from tests.integration.upstream import Upstream
from tokenweir import backend_keys
from tokenweir.config.loading import parse
from tokenweir.config.models import Config
from tokenweir.contract.records import Backend, Completion, Cost, Settings, Snapshot, State, Stats
from tokenweir.render import Paths, write

COST = Cost(prefill=0.05, base=10, per_sequence=0.1, per_kv_token=0.0001)


def backend(upstream: Upstream, **changes: Any) -> Backend:
    """An upstream as a backend of a snapshot."""
    members: dict[str, Any] = {
        "id": upstream.name,
        "host": "127.0.0.1",
        "port": upstream.port,
        "host_header": f"127.0.0.1:{upstream.port}",
        "models": {"llama": "llama"},
        "state": State.READY,
        "cost": COST,
        "engine": "vllm",
        **changes,
    }
    return Backend(**members)


def sha256(key: str) -> str:
    """What the settings hold of an API key."""
    return hashlib.sha256(key.encode()).hexdigest()


class Gateway:
    """nginx with the rendered configuration; the test is its sidecar."""

    def __init__(self, folder: Path, redis_port: int, workers: int = 2, **config: Any) -> None:
        self.folder = folder
        self.port, self.metrics_port = free_port(), free_port()
        document = {
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
        self.redis = redis.Redis(port=redis_port, decode_responses=True)
        self.sequence = 0
        self.version = 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        scheme = "https" if self.config.listen.tls else "http"
        return f"{scheme}://127.0.0.1:{self.port}"

    def start(self) -> Gateway:
        """Renders the files, starts nginx and waits for its workers."""
        write(self.config, self.paths, self.folder)
        self._process = subprocess.Popen(
            [*self._command(), "-g", "daemon off;"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        process = self._process

        def ready() -> bool:
            assert process.poll() is None, f"nginx did not start:\n{self.error_log()}"
            return len(self.workers()) >= self.workers_wanted and self._alive()

        wait_until(ready, what="nginx")
        return self

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
            return httpx.get(f"{self.url}/healthz", verify=False).status_code == 200
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
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._process = None

    def publish(self, *backends: Backend, wait: bool = True, **changes: Any) -> None:
        """Publishes a snapshot as the leader sidecar would, and waits until every worker has it."""
        self.sequence += 1
        snapshot = Snapshot(
            fence=1,
            sequence=self.sequence,
            time_ms=int(time.time() * 1000),
            backends=list(backends),
            **changes,
        )
        self.redis.set("tw:snapshot", snapshot.dump())
        if wait:
            self.wait_for("snapshot", self.sequence)

    def configure(self, wait: bool = True, **settings: Any) -> None:
        """Publishes settings."""
        self.version += 1
        document = Settings(version=self.version, **settings)
        self.redis.set("tw:settings", document.dump())
        if wait:
            self.wait_for("settings", self.version)

    def know_keys(self, keys: dict[str, str]) -> None:
        """Writes the keys that backends want, as the sidecar would, and waits until every worker has them."""
        backend_keys.write(self.paths.backend_keys, keys)
        time.sleep(0.8)

    def learn(self, **models: Any) -> None:
        """Publishes running figures."""
        self.version += 1
        self.redis.set("tw:stats", Stats(version=self.version, models=models).dump())
        self.wait_for("stats", self.version)

    def wait_for(self, document: str, number: int) -> None:
        """Waits until the gateway has this version of a document, and a moment for its other workers."""
        name = f'tokenweir_document_version{{document="{document}"}}'
        wait_until(lambda: self.metrics().get(name) == number, what=f"{document} {number}")
        time.sleep(0.15)

    def metrics(self) -> dict[str, float]:
        """Its metrics by series."""
        text = httpx.get(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=10).text
        pairs = (line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))
        return {name: float(value) for name, value in pairs}

    def metric(self, name: str, **labels: str) -> float:
        """The sum of the series of that name whose labels contain these."""
        wanted = [f'{label}="{value}"' for label, value in labels.items()]
        return sum(
            value
            for series, value in self.metrics().items()
            if series.partition("{")[0] == name and all(part in series for part in wanted)
        )

    def inflight(self) -> float:
        """Sequences in flight over all backends."""
        return self.metric("tokenweir_inflight")

    def post(
        self,
        path: str = "/v1/chat/completions",
        body: Any = None,
        headers: dict[str, str] | None = None,
        **members: Any,
    ) -> httpx.Response:
        """A POST on a connection of its own; `body` as bytes, or chat with these members."""
        if body is None:
            body = {"model": "llama", "messages": [{"role": "user", "content": "hi"}], **members}
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return httpx.post(
            self.url + path,
            content=content,
            headers={"Content-Type": "application/json", **(headers or {})},
            timeout=30,
            verify=False,
        )

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        """A GET on a connection of its own."""
        return httpx.get(self.url + path, headers=headers, timeout=30, verify=False)

    def open(self, headers: dict[str, str] | None = None, **members: Any) -> http.client.HTTPConnection:
        """Sends a chat request and returns without waiting for the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        body = json.dumps({"model": "llama", "messages": [{"role": "user", "content": "hi"}], **members})
        connection.request(
            "POST", "/v1/chat/completions", body, {"Content-Type": "application/json", **(headers or {})}
        )
        return connection

    def access_log(self, count: int = 1) -> list[dict[str, Any]]:
        """The lines of the access log, once there are so many."""
        path = self.paths.access_log

        def lines() -> list[str]:
            return path.read_text().splitlines() if path.exists() else []

        wait_until(lambda: len(lines()) >= count, what=f"{count} lines of the access log")
        return [json.loads(line) for line in lines()]

    def completions(self, count: int = 1) -> list[dict[str, Any]]:
        """The completion records in Redis, once there are so many; defaults filled in."""

        def records() -> list[dict[str, Any]]:
            entries: Any = self.redis.xrange("tw:completions")
            batches = [json.loads(fields["batch"]) for _, fields in entries]
            return [Completion.model_validate(record).model_dump() for batch in batches for record in batch]

        wait_until(lambda: len(records()) >= count, what=f"{count} completion records")
        return records()

    def error_log(self) -> str:
        """What stands in its error log."""
        path = self.paths.error_log
        return path.read_text(errors="replace") if path.exists() else ""
