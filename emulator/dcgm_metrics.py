"""The GPU's metrics under the names of NVIDIA's dcgm-exporter, reckoned from what the engine does."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from emulator.clock import EngineClock
from emulator.engine import Engine, Exhaustion
from emulator.histogram import family
from emulator.settings import Settings
from tokenweir import facts
from tokenweir.facts.capacity import RUNTIME_GB, UTILIZATION

WINDOW_MS = 1000.0
"""Virtual span that shares are taken over."""

MIB = 1 << 20
IDLE_SHARE_OF_POWER = 0.15
IDLE_CELSIUS, BUSY_CELSIUS = 32, 68

_PRODUCT = {
    "A100-80G": "NVIDIA A100-SXM4-80GB",
    "A100-40G": "NVIDIA A100-SXM4-40GB",
    "H100": "NVIDIA H100 80GB HBM3",
    "H200": "NVIDIA H200",
    "L40S": "NVIDIA L40S",
    "L4": "NVIDIA L4",
    "A10": "NVIDIA A10",
    "T4": "Tesla T4",
    "RTX-4090": "NVIDIA GeForce RTX 4090",
    "CPU": "CPU",
}


class DcgmMetrics:
    """The page of a card's metrics."""

    def __init__(
        self, engine: Engine, clock: EngineClock, settings: Settings, xid: Callable[[], int]
    ) -> None:
        self._engine, self._clock, self._settings, self._xid = engine, clock, settings, xid
        self._card = facts.gpu(settings.gpu)
        self._samples: deque[tuple[float, float, float, float]] = deque([(0.0, 0.0, 0.0, 0.0)])

    def on_tick(self) -> None:
        """Keep a sample of the engine's counters, at most every tenth of the window."""
        now = self._clock.now()
        if now - self._samples[-1][0] < WINDOW_MS / 10:
            return
        counters = self._engine.counters
        self._samples.append((now, counters.busy, counters.tensor, float(counters.steps)))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_MS:
            self._samples.popleft()

    def shares(self) -> tuple[float, float, float]:
        """Shares of the last second, 0 to 1: busy, tensor cores at work, memory at work."""
        now, counters = self._clock.now(), self._engine.counters
        begin, busy, tensor, steps = self._samples[0]
        span = max(now - begin, 1.0)
        # A step counts as soon as it starts, so a share may run a little ahead.
        active = min(1.0, (counters.busy - busy) / span)
        tensors = min(active, (counters.tensor - tensor) / span * self._card.compute_share)
        reads = (counters.steps - steps) * self._engine.pace.time.memory * self._card.bandwidth_share
        return active, tensors, min(active, reads / span)

    def used_gb(self) -> float:
        """Memory in use. Engines that reserve hold all of theirs from the start; those that crash grow as
        they need."""
        if self._settings.kind is not Exhaustion.CRASH:
            return UTILIZATION * self._card.memory_gb
        shape = facts.model(self._settings.model)
        held = self._engine.memory.usage * self._engine.capacity * shape.kv_bytes_per_token / 1e9
        whole = shape.weights_gb(self._settings.precision) + held
        return min(self._card.memory_gb, whole / self._settings.gpus + RUNTIME_GB)

    def page(self) -> str:
        """The whole page, one set of samples for each card."""
        return "\n".join([*self._families(), ""])

    def _families(self) -> Iterable[str]:
        active, tensors, memory = self.shares()
        used, total = self.used_gb() * 1e9 / MIB, self._card.memory_gb * 1e9 / MIB
        power = self._card.power_w * (
            IDLE_SHARE_OF_POWER + (1 - IDLE_SHARE_OF_POWER) * (active + tensors) / 2
        )
        celsius = IDLE_CELSIUS + (BUSY_CELSIUS - IDLE_CELSIUS) * (active + tensors) / 2
        values: tuple[tuple[str, str, float], ...] = (
            ("DCGM_FI_DEV_GPU_UTIL", "GPU utilization (in %).", round(100 * active)),
            ("DCGM_FI_DEV_MEM_COPY_UTIL", "Memory utilization (in %).", round(100 * memory)),
            ("DCGM_FI_DEV_FB_USED", "Framebuffer memory used (in MiB).", round(used)),
            ("DCGM_FI_DEV_FB_FREE", "Framebuffer memory free (in MiB).", round(total - used)),
            ("DCGM_FI_PROF_GR_ENGINE_ACTIVE", "Ratio of time the graphics engine is active.", active),
            ("DCGM_FI_PROF_SM_ACTIVE", "Ratio of cycles an SM has a warp assigned.", 0.95 * active),
            ("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", "Ratio of cycles the tensor pipe is active.", tensors),
            ("DCGM_FI_PROF_DRAM_ACTIVE", "Ratio of cycles the memory interface is active.", memory),
            ("DCGM_FI_DEV_XID_ERRORS", "Value of the last XID error encountered.", self._xid()),
            ("DCGM_FI_DEV_POWER_USAGE", "Power draw (in W).", round(power, 1)),
            ("DCGM_FI_DEV_GPU_TEMP", "GPU temperature (in C).", round(celsius)),
        )
        cards = [
            {
                "gpu": str(i),
                "UUID": f"GPU-00000000-0000-0000-0000-{i:012d}",
                "device": f"nvidia{i}",
                "modelName": _PRODUCT[self._card.name],
                "Hostname": "emulator",
            }
            for i in range(self._settings.gpus)
        ]
        for name, text, value in values:
            yield from family(name, "gauge", text, [(card, round(value, 6)) for card in cards])
