"""Runs the watches, spread over the interval: one per backend, one per host with GPUs, one per container
runtime; measures what they cost."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import structlog

from sidecar import tasks
from sidecar.telemetry.card_sources import CardSource, DriverSource, ExporterSource
from sidecar.telemetry.card_watch import CardWatch, OnXid, Share
from sidecar.telemetry.containers import Containers
from sidecar.telemetry.http import Fetcher
from sidecar.telemetry.own_cost import OwnCost
from sidecar.telemetry.readings import XidEvent
from sidecar.telemetry.watch import Seen, Watch, Where
from tokenweir.config.models import BackendConfig, TelemetryConfig

log = structlog.get_logger(__name__)

GOLDEN: Final = 0.6180339887498949
"""Successive multiples of the golden ratio, modulo one, spread evenly whatever their number."""
FIRST_LOOK_MS: Final = 1000
"""Within how long each backend is looked at for the first time, however long the interval."""


def ignore_xid(_backend_id: str, _event: XidEvent) -> None:
    """Where nobody listens the events are in the record all the same."""


class Collector:
    """The set of watches. `set_backends` brings it in line with the fleet."""

    def __init__(
        self, config: TelemetryConfig, seen: Seen, on_xid: OnXid = ignore_xid, folder: Path = Path()
    ) -> None:
        self.fetcher = Fetcher(config.timeout)
        self.watches: dict[str, Watch] = {}
        self.card_watches: dict[str, CardWatch] = {}
        """By exporter; `nvml` is this host's own driver."""
        self.containers = Containers(folder, self._container_changed)
        self._on_xid = on_xid
        self._card_tasks: dict[str, asyncio.Task[None]] = {}
        self._interval_ms = config.interval
        self._seen = seen
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._started = 0
        self.cost = OwnCost(self.fetcher.traffic, config.interval)

    async def open(self) -> None:
        """Make the client's pool."""
        await self.fetcher.open()

    async def close(self) -> None:
        """Stop every watch."""
        await self.containers.close()
        await tasks.cancel([*self._tasks.values(), *self._card_tasks.values()])
        self._tasks.clear()
        self._card_tasks.clear()
        for watch in self.card_watches.values():
            watch.close()
        self.card_watches.clear()
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
            self.watches[backend_id] = watch
            self._tasks[backend_id] = asyncio.create_task(
                self._run(watch, self._phase(), backend_id), name=f"watch {backend_id}"
            )
        self._set_cards()
        self.containers.set_backends(
            {backend_id: (watch.config.actuator, watch.record) for backend_id, watch in self.watches.items()}
        )

    def _container_changed(self, backend_id: str) -> None:
        """An engine whose container began or ended is looked at now."""
        watch = self.watches.get(backend_id)
        if watch is not None:
            watch.hurry()

    def _set_cards(self) -> None:
        """Watch the cards of exactly the hosts that the backends name, each once."""
        shares: dict[str, dict[str, Share]] = {}
        for backend_id, watch in self.watches.items():
            config, record = watch.config, watch.record
            host = "nvml" if config.nvml else config.dcgm_url
            if host is None:
                record.card = None
                record.notes.pop("cards", None)
                continue
            shares.setdefault(host, {})[backend_id] = Share(record, tuple(config.cards), config.card_labels)
        for host in [known for known in self.card_watches if known not in shares]:
            self.card_watches.pop(host).close()
            self._card_tasks.pop(host).cancel()
        for host, backends in shares.items():
            known = self.card_watches.get(host)
            if known is None:
                source: CardSource = DriverSource() if host == "nvml" else ExporterSource(host, self.fetcher)
                known = self.card_watches[host] = CardWatch(host, source, self._interval_ms, self._on_xid)
                self._card_tasks[host] = asyncio.create_task(
                    self._run(known, self._phase(), host), name=f"cards {host}"
                )
            known.shares = backends

    def _phase(self) -> float:
        """When the next watch begins, ms from now."""
        self._started += 1
        return (self._started * GOLDEN) % 1 * min(self._interval_ms, FIRST_LOOK_MS)

    async def _run(self, watch: Watch | CardWatch, phase_ms: float, name: str) -> None:
        """A watch that meets an error of our own goes on: one backend must not be lost by a bug."""
        while True:
            try:
                await watch.run(phase_ms)
            except asyncio.CancelledError:
                raise
            except Exception:
                log.exception("watch_failed", watch=name)
                await asyncio.sleep(1)

    def _stop(self, backend_id: str) -> None:
        self.watches.pop(backend_id, None)
        task = self._tasks.pop(backend_id, None)
        if task is not None:
            task.cancel()


def _looks_alike(one: BackendConfig, other: BackendConfig) -> bool:
    """Whether both configurations are watched in the same way."""
    asked = ("url", "engine", "models", "metrics_url", "api_key_file", "host_header", "tls")
    return all(getattr(one, name) == getattr(other, name) for name in asked)
