"""A whole gateway under test: rendered from a configuration, with a Redis and scripted upstreams."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import threading
import time
from pathlib import Path
from typing import Any, Protocol

import httpx
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from tests.integration.proxy.process import HTTP, GatewayProcess
from tests.integration.servers import PATIENCE, applied_everywhere, observed, wait_until
from tokenweir import backend_keys
from tokenweir.contract.records import Backend, Completion, Cost, Settings, Snapshot, State, Stats

HEARTBEAT_S = 0.5
COST = Cost(prefill=0.05, base=10, per_sequence=0.1, per_kv_token=0.0001)


class Server(Protocol):
    """What listens on this host under a name."""

    @property
    def name(self) -> str:
        """The backend's id."""

    @property
    def port(self) -> int:
        """Where it listens."""


def backend(upstream: Server, **changes: Any) -> Backend:
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


class Gateway(GatewayProcess):
    """A gateway whose sidecar is the test.

    As a sidecar does, it publishes the snapshot again and again, so that a test may take longer than a
    snapshot is believed; `silence` ends that.
    """

    def __init__(
        self, folder: Path, redis_port: int, workers: int = 2, clock: Path | None = None, **config: Any
    ) -> None:
        super().__init__(folder, redis_port, workers, clock, **config)
        self.redis = redis.Redis(port=redis_port, decode_responses=True)
        self.sequence = 0
        self.version = 0
        self._published: tuple[list[Backend], dict[str, Any]] | None = None
        self._publishing = threading.Lock()
        self._silent = threading.Event()
        self._heart = threading.Thread(target=self._beat, daemon=True)

    def stop(self) -> None:
        """Stops it at once."""
        self.silence()
        super().stop()

    def publish(self, *backends: Backend, wait: bool = True, **changes: Any) -> None:
        """Publishes a snapshot as the leader sidecar would, and waits until every worker has it."""
        with self._publishing:
            self._published = list(backends), changes
            self._put_snapshot(self.redis)
            sequence = self.sequence
        if not self._heart.is_alive() and not self._silent.is_set():
            self._heart.start()
        if wait:
            self.wait_for("snapshot", sequence)

    def _put_snapshot(self, client: redis.Redis) -> None:
        assert self._published
        backends, changes = self._published
        self.sequence += 1
        now = int(time.time() * 1000)
        snapshot = Snapshot(fence=1, sequence=self.sequence, time_ms=now, backends=backends, **changes)
        client.set("tw:snapshot", snapshot.dump())

    def _beat(self) -> None:
        port = self.config.redis.port
        with redis.Redis(port=port, socket_timeout=1, retry=Retry(NoBackoff(), 0)) as client:
            while not self._silent.wait(HEARTBEAT_S):
                with self._publishing, contextlib.suppress(redis.RedisError):
                    self._put_snapshot(client)

    def silence(self) -> None:
        """Publishes nothing by itself from now on."""
        self._silent.set()
        if self._heart.is_alive():
            self._heart.join(PATIENCE)

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
        before = self._looks()

        def read() -> bool:
            now = self._looks()
            # A look that has been under way may have missed the file; the next has not.
            return (
                sum(now.get(pid, 0) >= before.get(pid, 0) + 2 for pid in self.workers())
                >= self.workers_wanted
            )

        wait_until(read, what="the keys in every worker")

    def _looks(self) -> dict[int, float]:
        """How often each worker has looked for new keys."""
        return observed(self.page("applied"), "keys")

    def learn(self, **models: Any) -> None:
        """Publishes running figures."""
        self.version += 1
        self.redis.set("tw:stats", Stats(version=self.version, models=models).dump())
        self.wait_for("stats", self.version)

    def wait_for(self, document: str, number: int) -> None:
        """Waits until the workers have applied this version of a document, or a later one."""

        def everywhere() -> bool:
            return applied_everywhere(
                self.page("applied"), self.workers(), self.workers_wanted, document, number
            )

        wait_until(everywhere, what=f"{document} {number}")

    def page(self, name: str) -> str:
        """A page of its metrics port."""
        return HTTP.get(f"http://127.0.0.1:{self.metrics_port}/{name}").text

    def metrics(self) -> dict[str, float]:
        """Its metrics by series."""
        text = self.page("metrics")
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

    def expect(self, wanted: float, name: str, **labels: str) -> None:
        """Waits until a counter shows exactly this: the workers add up what they counted every second."""
        wait_until(lambda: self.metric(name, **labels) >= wanted, what=f"{name} at {wanted}")
        assert self.metric(name, **labels) == wanted

    def lease(self) -> dict[str, Any]:
        """Its lease in Redis."""
        return dict(json.loads(str(self.redis.get(f"tw:gateway:{self.config.gateway_id}"))))

    def inflight(self) -> float:
        """Sequences in flight over all backends."""
        return self.metric("tokenweir_inflight")

    def settle(self, seconds: float = PATIENCE) -> None:
        """Waits until nothing is in flight: an answer is over a moment before its reservation is released."""
        wait_until(lambda: self.inflight() == 0, seconds, "an empty ledger")

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
        return HTTP.post(
            self.url + path, content=content, headers={"Content-Type": "application/json", **(headers or {})}
        )

    def get(self, path: str, headers: dict[str, str] | None = None) -> httpx.Response:
        """A GET on a connection of its own."""
        return HTTP.get(self.url + path, headers=headers)

    def open(
        self, headers: dict[str, str] | None = None, raw: bytes | None = None, **members: Any
    ) -> http.client.HTTPConnection:
        """Sends a chat request (`raw`: its body as bytes) and returns without waiting for the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        chat = {"model": "llama", "messages": [{"role": "user", "content": "hi"}], **members}
        body = raw or json.dumps(chat).encode()
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
