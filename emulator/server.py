"""The emulated server: one process that answers as an inference server with one kind of GPU does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from emulator.clock import EngineClock
from emulator.dcgm_metrics import DcgmMetrics
from emulator.delivery import Delivery
from emulator.engine import Engine, Event
from emulator.faults import Actions, Faults
from emulator.journal import Journal
from emulator.openai.responses import ResponseStore
from emulator.pump import Pump
from emulator.settings import Settings
from emulator.vllm_metrics import VllmMetrics
from tokenweir import facts

if TYPE_CHECKING:
    from emulator.handover import Handover
    from emulator.kv_tensors import KvTensors

logger = logging.getLogger(__name__)


class Server:
    """All parts of one emulated server. `on_crash` ends the process."""

    def __init__(self, settings: Settings, on_crash: Callable[[], None]) -> None:
        self.settings = settings
        loop = asyncio.get_running_loop()
        self.clock = EngineClock(loop.time, settings.speed)
        time_of_step = facts.step_time(settings.gpu, settings.model, settings.precision, settings.gpus)
        self.engine = Engine(time_of_step, settings.kv_tokens, settings.kind, settings.limits)
        self.journal = Journal(settings.journal)
        self._crash = on_crash
        self.pump = Pump(self.engine, self.clock, self._on_event, self._on_tick, self._die)
        self.faults = Faults(
            Actions(self.pump.stop, self.pump.go, self._slow, self._fail_all, self._die), settings.seed
        )
        self.metrics = VllmMetrics(self.engine, self.clock, settings)
        self.dcgm = DcgmMetrics(self.engine, self.clock, settings, lambda: self.faults.xid)
        self.delivery = Delivery(self.pump, self.journal, self.metrics, settings)
        self.responses = ResponseStore()
        self.tensors = self._tensors() if settings.kv_bytes else None
        self.handover: Handover | None = None
        self.started = int(time.time())
        self._ready_at = loop.time() + settings.startup_seconds

    def _tensors(self) -> KvTensors:
        from emulator.kv_tensors import KvTensors  # noqa: PLC0415  (torch takes seconds, and may not be there)

        return KvTensors(self.engine, self.settings.kv_bytes, self.pump.tick)

    @property
    def ready(self) -> bool:
        """Whether the model is loaded."""
        return asyncio.get_running_loop().time() >= self._ready_at

    def _on_event(self, event: Event) -> None:
        self.metrics.on_event(event)

    def _on_tick(self) -> None:
        self.metrics.on_tick()
        self.dcgm.on_tick()

    def _slow(self, factor: float) -> None:
        self.pump.tick()
        self.engine.pace.slowdown = factor

    def _fail_all(self, reason: str) -> None:
        self.pump.tick()
        self.engine.fail_all(reason, waiting=True)
        self.pump.tick()

    def _die(self) -> None:
        logger.error("the engine died: KV memory full or ordered to")
        self._crash()

    def update(self) -> None:
        """Bring engine and metrics up to now."""
        self.pump.tick()
