"""Watches the pods that engines run in, by the Kubernetes API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from sidecar.actuators.actuator import ActuationError
from sidecar.actuators.kubernetes_client import Api, Cluster, explain
from sidecar.clock import monotonic_ms, wall_ms
from sidecar.telemetry.container import of_pod
from sidecar.telemetry.readings import Record
from tokenweir.config.actuators import KubernetesConfig

NOTE: Final = "container"
EVERY_S: Final = 2.0
AGAIN_MOST_S: Final = 30.0

_pool = ThreadPoolExecutor(4, thread_name_prefix="pods")

Changed = Callable[[str], None]


class PodWatch:
    """The pod of one backend. `changed` is told when its container began or ended."""

    def __init__(
        self, backend_id: str, config: KubernetesConfig, folder: Path, record: Record, changed: Changed
    ) -> None:
        self.record = record
        self._backend_id = backend_id
        self._config = config
        self._cluster = Cluster(config, folder)
        self._changed = changed

    async def run(self, phase_ms: float = 0) -> None:
        """Look for ever."""
        await asyncio.sleep(phase_ms / 1000)
        pause = EVERY_S
        while True:
            pause = EVERY_S if await self.look() else min(pause * 2, AGAIN_MOST_S)
            await asyncio.sleep(pause)

    async def look(self) -> bool:
        """Look once; whether the API answered."""
        before = self.record.container
        try:
            pods = await asyncio.get_running_loop().run_in_executor(_pool, self._pods)
        except ActuationError as error:
            self.record.notes[NOTE] = str(error)
            return False
        reading = of_pod(pods, self._config.container, before, monotonic_ms(), float(wall_ms()))
        self.record.container = reading
        self.record.notes.pop(NOTE, None)
        if before is None or (before.state, before.ended_at) != (reading.state, reading.ended_at):
            self._changed(self._backend_id)
        return True

    def _pods(self) -> list[Any]:
        api: Api = self._cluster.connect()
        try:
            return api.pods()
        except api.errors as error:
            if getattr(error, "status", None) == 404:
                return []
            raise ActuationError(explain(error)) from None
