"""Runs the watches, one per backend, spread over the interval."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

import structlog

from sidecar import tasks
from sidecar.telemetry.http import Fetcher
from sidecar.telemetry.watch import Seen, Watch, Where
from tokenweir.config.models import BackendConfig, TelemetryConfig

log = structlog.get_logger(__name__)

GOLDEN: Final = 0.6180339887498949
"""Successive multiples of the golden ratio, modulo one, spread evenly whatever their number."""
FIRST_LOOK_MS: Final = 1000
"""Within how long each backend is looked at for the first time, however long the interval."""


class Collector:
    """The set of watches. `set_backends` brings it in line with the fleet."""

    def __init__(self, config: TelemetryConfig, seen: Seen) -> None:
        self.fetcher = Fetcher(config.timeout)
        self.watches: dict[str, Watch] = {}
        self._interval_ms = config.interval
        self._seen = seen
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = 0

    async def open(self) -> None:
        """Make the client's pool."""
        await self.fetcher.open()

    async def close(self) -> None:
        """Stop every watch."""
        await tasks.cancel(self._tasks.values())
        self._tasks.clear()
        await self.fetcher.close()

    def set_backends(self, wanted: Mapping[str, tuple[BackendConfig, Where]]) -> None:
        """Watch exactly `wanted` (id -> configuration, where it is). A watch goes on undisturbed unless what
        it looks at changed."""
        for backend_id in [known for known in self.watches if known not in wanted]:
            self._stop(backend_id)
        for backend_id, (config, where) in wanted.items():
            known = self.watches.get(backend_id)
            if known is not None and _looks_alike(known.config, config):
                known.config = config
                continue
            self._stop(backend_id)
            watch = Watch(config, where, self.fetcher, self._interval_ms, self._seen)
            self._started += 1
            phase = (self._started * GOLDEN) % 1 * min(self._interval_ms, FIRST_LOOK_MS)
            self.watches[backend_id] = watch
            self._tasks[backend_id] = asyncio.create_task(self._run(watch, phase), name=f"watch {backend_id}")

    async def _run(self, watch: Watch, phase_ms: float) -> None:
        """A watch that meets an error of our own goes on: one backend must not be lost by a bug."""
        while True:
            try:
                await watch.run(phase_ms)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("watch_failed", backend=watch.config.id)
                await asyncio.sleep(1)

    def _stop(self, backend_id: str) -> None:
        self.watches.pop(backend_id, None)
        task = self._tasks.pop(backend_id, None)
        if task is not None:
            task.cancel()


def _looks_alike(one: BackendConfig, other: BackendConfig) -> bool:
    """Whether both configurations are watched in the same way."""
    asked = ("url", "engine", "models", "metrics_url", "dcgm_url", "api_key_file", "host_header", "tls")
    return all(getattr(one, name) == getattr(other, name) for name in asked)
