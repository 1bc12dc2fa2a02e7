"""Runs the watches of container runtimes: one per Docker engine, one per pod. Which container an engine runs
in is known from its actuator."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from sidecar import tasks
from sidecar.actuators.docker_client import host_of
from sidecar.telemetry.docker_watch import DockerWatch
from sidecar.telemetry.pod_watch import PodWatch
from sidecar.telemetry.readings import Record
from tokenweir.config.actuators import ActuatorConfig, DockerConfig, KubernetesConfig

log = structlog.get_logger(__name__)

Changed = Callable[[str], None]
Endpoint = tuple[str, str | None, str | None, str | None]
"""A Docker engine and the files by which it is spoken to."""


class Containers:
    """The set of watches. `set_backends` brings it in line with the fleet."""

    def __init__(self, folder: Path, changed: Changed) -> None:
        self._folder = folder
        self._changed = changed
        self._engines: dict[Endpoint, DockerWatch] = {}
        self._pods: dict[str, tuple[KubernetesConfig, Record]] = {}
        self._tasks: dict[object, asyncio.Task[None]] = {}

    def set_backends(self, wanted: Mapping[str, tuple[ActuatorConfig | None, Record]]) -> None:
        """Watch the containers of exactly these backends."""
        engines: dict[Endpoint, tuple[DockerConfig, dict[str, tuple[Record, str]]]] = {}
        pods: dict[str, tuple[KubernetesConfig, Record]] = {}
        for backend_id, (actuator, record) in wanted.items():
            if actuator is not None and actuator.docker is not None:
                config = actuator.docker
                endpoint = (host_of(config), config.ca, config.certificate, config.key)
                engines.setdefault(endpoint, (config, {}))[1][backend_id] = (record, config.container)
            elif actuator is not None and actuator.kubernetes is not None:
                pods[backend_id] = (actuator.kubernetes, record)
            else:
                record.container = None
                record.notes.pop("container", None)
        self._set_engines(engines)
        self._set_pods(pods)

    async def close(self) -> None:
        """Stop every watch."""
        await tasks.cancel(self._tasks.values())
        self._tasks.clear()
        self._engines.clear()
        self._pods.clear()

    def _set_engines(
        self, wanted: Mapping[Endpoint, tuple[DockerConfig, dict[str, tuple[Record, str]]]]
    ) -> None:
        for gone in set(self._engines) - set(wanted):
            del self._engines[gone]
            self._stop(gone)
        for endpoint, (config, members) in wanted.items():
            watch = self._engines.get(endpoint)
            if watch is None:
                watch = self._engines[endpoint] = DockerWatch(config, self._folder, self._changed)
                self._start(endpoint, watch, f"containers of {watch.name}")
            watch.set_members(members)

    def _set_pods(self, wanted: dict[str, tuple[KubernetesConfig, Record]]) -> None:
        for backend_id, (config, record) in list(self._pods.items()):
            known = wanted.get(backend_id)
            if known is None or known[0] != config or known[1] is not record:
                del self._pods[backend_id]
                self._stop(backend_id)
        for backend_id, (config, record) in wanted.items():
            if backend_id not in self._pods:
                self._pods[backend_id] = (config, record)
                watch = PodWatch(backend_id, config, self._folder, record, self._changed)
                self._start(backend_id, watch, f"pod of {backend_id}")

    def _start(self, key: object, watch: DockerWatch | PodWatch, name: str) -> None:
        self._tasks[key] = asyncio.create_task(_run(watch, name), name=name)

    def _stop(self, key: object) -> None:
        task = self._tasks.pop(key, None)
        if task is not None:
            task.cancel()


async def _run(watch: DockerWatch | PodWatch, name: str) -> None:
    """A watch that meets an error of our own goes on."""
    while True:
        try:
            await watch.run()
        except asyncio.CancelledError:
            raise
        except Exception:
            log.exception("watch_failed", watch=name)
            await asyncio.sleep(1)
