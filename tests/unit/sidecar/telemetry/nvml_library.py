"""libnvidia-ml as its documentation describes it, for two cards, behind the real bindings: they call these as
they call the functions of the driver, with their own ctypes structures.

https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pynvml
import pytest

MIB = 1024**2
BASE = 0x1000


@dataclass
class FakeCard:
    """What one card answers; `lacks` are the functions that it does not support."""

    uuid: str
    name: str = "NVIDIA H100 80GB HBM3"
    bus: str = "00000000:65:00.0"
    used: int = 60_000 * MIB
    free: int = 20_000 * MIB
    reserved: int = 559 * MIB
    gpu: int = 87
    temperature: int = 61
    power_mw: int = 512_250
    limit_mw: int = 700_000
    clock: int = 1755
    clock_max: int = 1980
    reasons: int = 0x4
    corrected: int = 3
    uncorrected: int = 1
    remap_failed: int = 0
    gpm: bool = True
    sm: float = 93.0
    tensor: float = 41.5
    dram: float = 60.25
    lacks: set[str] = field(default_factory=set)
    lost: bool = False
    """It has fallen off the bus: every function fails on it."""


def _set(reference: Any, value: int) -> None:
    """Write a number, or an address, where a `byref` points."""
    target = reference._obj
    if isinstance(target, ctypes._Pointer):
        ctypes.c_void_p.from_buffer(target).value = value
    else:
        target.value = value


class FakeNvml:
    """The library. Every function returns an NVML status and writes through its pointers."""

    def __init__(self, cards: list[FakeCard]) -> None:
        self.cards = cards
        self.events: deque[tuple[int, int]] = deque()
        """(card, XID) that the driver has queued."""
        self.users = 0
        self.samples = 0
        self.status = pynvml.NVML_SUCCESS
        """Of every function, for a driver that has gone."""
        self.registered: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    def _card(self, handle: Any, function: str) -> FakeCard | None:
        card = self.cards[(ctypes.c_void_p.from_buffer(handle).value or BASE) - BASE]
        return None if function in card.lacks or (card.lost and function) else card

    def _tell(self, handle: Any, function: str, reference: Any, member: str) -> int:
        if self.status != pynvml.NVML_SUCCESS:
            return self.status
        card = self._card(handle, function)
        if card is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        _set(reference, getattr(card, member))
        return int(pynvml.NVML_SUCCESS)

    def _text(self, handle: Any, buffer: Any, length: Any, member: str) -> int:
        text = str(getattr(self._card(handle, ""), member)).encode()
        if len(text) >= length.value:
            return int(pynvml.NVML_ERROR_INSUFFICIENT_SIZE)
        buffer.value = text
        return int(pynvml.NVML_SUCCESS)

    def nvmlInitWithFlags(self, _flags: int) -> int:
        self.users += 1
        return int(self.status)

    def nvmlShutdown(self) -> int:
        self.users -= 1
        return int(pynvml.NVML_SUCCESS)

    def nvmlErrorString(self, _status: int) -> bytes:
        return b"an error"

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        _set(count, len(self.cards))
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetHandleByIndex_v2(self, index: Any, device: Any) -> int:
        if self.cards[index.value].lost:
            return int(pynvml.NVML_ERROR_GPU_IS_LOST)
        _set(device, BASE + index.value)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetUUID(self, handle: Any, buffer: Any, length: Any) -> int:
        return self._text(handle, buffer, length, "uuid")

    def nvmlDeviceGetName(self, handle: Any, buffer: Any, length: Any) -> int:
        return self._text(handle, buffer, length, "name")

    def nvmlDeviceGetPciInfo_v3(self, handle: Any, info: Any) -> int:
        card = self._card(handle, "")
        info._obj.busId = card.bus.encode() if card else b""
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetMinorNumber(self, handle: Any, number: Any) -> int:
        _set(number, (ctypes.c_void_p.from_buffer(handle).value or BASE) - BASE)
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetMemoryInfo_v2(self, handle: Any, memory: Any) -> int:
        card = self._card(handle, "nvmlDeviceGetMemoryInfo_v2")
        if card is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if memory._obj.version != pynvml.nvmlMemory_v2:
            return int(pynvml.NVML_ERROR_ARGUMENT_VERSION_MISMATCH)
        memory._obj.total = card.used + card.free + card.reserved
        memory._obj.used, memory._obj.free, memory._obj.reserved = card.used, card.free, card.reserved
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetMemoryInfo(self, handle: Any, memory: Any) -> int:
        # The first version counts what the driver keeps as used.
        card = self._card(handle, "nvmlDeviceGetMemoryInfo")
        if card is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        memory._obj.total = card.used + card.free + card.reserved
        memory._obj.used, memory._obj.free = card.used + card.reserved, card.free
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetUtilizationRates(self, handle: Any, rates: Any) -> int:
        card = self._card(handle, "nvmlDeviceGetUtilizationRates")
        if card is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        rates._obj.gpu, rates._obj.memory = card.gpu, 40
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceGetTemperature(self, handle: Any, _sensor: Any, value: Any) -> int:
        return self._tell(handle, "nvmlDeviceGetTemperature", value, "temperature")

    def nvmlDeviceGetPowerUsage(self, handle: Any, value: Any) -> int:
        return self._tell(handle, "nvmlDeviceGetPowerUsage", value, "power_mw")

    def nvmlDeviceGetEnforcedPowerLimit(self, handle: Any, value: Any) -> int:
        return self._tell(handle, "nvmlDeviceGetEnforcedPowerLimit", value, "limit_mw")

    def nvmlDeviceGetClockInfo(self, handle: Any, kind: Any, value: Any) -> int:
        if kind.value != pynvml.NVML_CLOCK_SM:
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._tell(handle, "nvmlDeviceGetClockInfo", value, "clock")

    def nvmlDeviceGetMaxClockInfo(self, handle: Any, kind: Any, value: Any) -> int:
        if kind.value != pynvml.NVML_CLOCK_SM:
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        return self._tell(handle, "nvmlDeviceGetMaxClockInfo", value, "clock_max")

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, value: Any) -> int:
        return self._tell(handle, "nvmlDeviceGetCurrentClocksThrottleReasons", value, "reasons")

    def nvmlDeviceGetTotalEccErrors(self, handle: Any, kind: Any, counter: Any, value: Any) -> int:
        if counter.value != pynvml.NVML_VOLATILE_ECC:
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        corrected = kind.value == pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED
        return self._tell(
            handle, "nvmlDeviceGetTotalEccErrors", value, "corrected" if corrected else "uncorrected"
        )

    def nvmlDeviceGetRemappedRows(
        self, handle: Any, corrected: Any, uncorrected: Any, pending: Any, failed: Any
    ) -> int:
        for reference in (corrected, uncorrected, pending):
            _set(reference, 0)
        return self._tell(handle, "nvmlDeviceGetRemappedRows", failed, "remap_failed")

    def nvmlEventSetCreate(self, events: Any) -> int:
        _set(events, 0x2000)
        return int(pynvml.NVML_SUCCESS)

    def nvmlEventSetFree(self, _events: Any) -> int:
        self.registered.clear()
        return int(pynvml.NVML_SUCCESS)

    def nvmlDeviceRegisterEvents(self, handle: Any, kinds: Any, _events: Any) -> int:
        if self._card(handle, "nvmlDeviceRegisterEvents") is None:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        if kinds.value != pynvml.nvmlEventTypeXidCriticalError:
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        self.registered.add((ctypes.c_void_p.from_buffer(handle).value or BASE) - BASE)
        return int(pynvml.NVML_SUCCESS)

    def nvmlEventSetWait_v2(self, _events: Any, data: Any, _timeout: Any) -> int:
        if self.status != pynvml.NVML_SUCCESS:
            return int(self.status)
        if not self.events:
            lost = any(card.lost for card in self.cards)
            return int(pynvml.NVML_ERROR_GPU_IS_LOST if lost else pynvml.NVML_ERROR_TIMEOUT)
        card, code = self.events.popleft()
        if card not in self.registered:
            return int(pynvml.NVML_ERROR_TIMEOUT)
        device = pynvml.c_nvmlDevice_t()
        ctypes.c_void_p.from_buffer(device).value = BASE + card
        data._obj.device = device
        data._obj.eventType, data._obj.eventData = pynvml.nvmlEventTypeXidCriticalError, code
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpmQueryDeviceSupport(self, handle: Any, support: Any) -> int:
        card = self._card(handle, "")
        support._obj.isSupportedDevice = int(card is not None and card.gpm)
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpmSampleAlloc(self, sample: Any) -> int:
        self.samples += 1
        _set(sample, 0x3000 + self.samples)
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpmSampleFree(self, _sample: Any) -> int:
        self.samples -= 1
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpmSampleGet(self, handle: Any, sample: Any) -> int:
        self._sampled = self._card(handle, "")
        return int(pynvml.NVML_SUCCESS)

    def nvmlGpmMetricsGet(self, asked: Any) -> int:
        request = asked._obj
        if (
            request.version != pynvml.NVML_GPM_METRICS_GET_VERSION
            or not request.sample1
            or not request.sample2
        ):
            return int(pynvml.NVML_ERROR_INVALID_ARGUMENT)
        values = {
            pynvml.NVML_GPM_METRIC_SM_UTIL: self._sampled.sm,
            pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL: self._sampled.tensor,
            pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL: self._sampled.dram,
        }
        for place in range(request.numMetrics):
            metric = request.metrics[place]
            known = metric.metricId in values
            metric.nvmlReturn = pynvml.NVML_SUCCESS if known else pynvml.NVML_ERROR_NOT_SUPPORTED
            metric.value = values.get(metric.metricId, 0.0)
        return int(pynvml.NVML_SUCCESS)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeNvml]:
    """A host with two cards, the second of an older kind."""
    fake = FakeNvml(
        [
            FakeCard("GPU-aaaa"),
            FakeCard("GPU-bbbb", name="NVIDIA A100-SXM4-80GB", bus="00000000:CA:00.0", gpm=False, reasons=0),
        ]
    )

    def load(name: str) -> FakeNvml:
        assert name == "libnvidia-ml.so.1"
        return fake

    monkeypatch.setattr(pynvml, "CDLL", load)
    monkeypatch.setattr(pynvml, "nvmlLib", None)
    pynvml._nvmlGetFunctionPointer_cache.clear()
    yield fake
    pynvml._nvmlGetFunctionPointer_cache.clear()
