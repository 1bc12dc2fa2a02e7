"""The GPUs of this host by NVIDIA's driver (NVML, through the package `nvidia-ml-py`).

For a sidecar or an agent on the GPU host itself, where no exporter runs. What a card or a driver cannot tell
is left out, one value at a time. Multiprocessor and tensor activity come from NVML's GPU performance
monitoring, which cards since Hopper have.
https://docs.nvidia.com/deploy/nvml-api/
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from threading import Lock
from types import ModuleType
from typing import Any, Final

from sidecar.telemetry.nvml_activity import Activity
from sidecar.telemetry.readings import Card

MIB: Final = 1024**2
MOST_EVENTS: Final = 64
"""XID errors taken from the driver in one look; the rest wait for the next."""


class NvmlUnavailableError(Exception):
    """There is no NVML here; the text says what is missing."""


class Nvml:
    """The driver's library. `read` blocks for some ms; it is called from one thread at a time."""

    def __init__(self) -> None:
        self._library: ModuleType | None = None
        self._lock = Lock()
        self._handles: list[Any] = []
        self._static: list[dict[str, Any]] = []
        self._events: Any = None
        self._xids: list[Counter[int]] = []
        self._last_xid: list[int] = []
        self._activity: list[Activity | None] = []

    def read(self) -> list[Card]:
        """All cards. Raises NvmlUnavailableError."""
        with self._lock:
            library = self._library or self._open()
            try:
                self._take_events(library)
                return [self._card(library, number) for number in range(len(self._handles))]
            except library.NVMLError as error:
                self._close()
                raise NvmlUnavailableError(f"NVML: {error}") from None

    def close(self) -> None:
        """Let go of the driver."""
        with self._lock:
            self._close()

    def _open(self) -> ModuleType:
        try:
            library = import_module("pynvml")
        except ImportError:
            raise NvmlUnavailableError(
                "the package nvidia-ml-py is not installed: pip install -r requirements-extras.lock"
            ) from None
        try:
            library.nvmlInit()
            found = [(index, _handle(library, index)) for index in range(library.nvmlDeviceGetCount())]
        except library.NVMLError as error:
            raise NvmlUnavailableError(f"NVML: {error}") from None
        self._handles = [handle for _, handle in found if handle is not None]
        indexes = [index for index, handle in found if handle is not None]
        if not self._handles:
            library.nvmlShutdown()
            raise NvmlUnavailableError("NVML: the driver shows no GPU")
        self._library = library
        self._static = [
            _facts(library, handle, index) for handle, index in zip(self._handles, indexes, strict=True)
        ]
        self._xids = [Counter() for _ in self._handles]
        self._last_xid = [0] * len(self._handles)
        self._activity = [Activity.of(library, handle) for handle in self._handles]
        self._watch_events(library)
        return library

    def _close(self) -> None:
        library, self._library = self._library, None
        if library is None:
            return
        for activity in self._activity:
            if activity is not None:
                activity.close()
        with contextlib.suppress(library.NVMLError):
            if self._events is not None:
                library.nvmlEventSetFree(self._events)
        self._events = None
        with contextlib.suppress(library.NVMLError):
            library.nvmlShutdown()

    def _card(self, library: ModuleType, number: int) -> Card:
        handle = self._handles[number]

        def told(call: Callable[[], Any]) -> Any:
            return _told(library, call)

        memory = told(lambda: library.nvmlDeviceGetMemoryInfo(handle, version=library.nvmlMemory_v2))
        if memory is None:
            memory = told(lambda: library.nvmlDeviceGetMemoryInfo(handle))
        reserved = getattr(memory, "reserved", None)
        rates = told(lambda: library.nvmlDeviceGetUtilizationRates(handle))
        remapped = told(lambda: library.nvmlDeviceGetRemappedRows(handle))
        activity = self._activity[number]
        shares = activity.shares() if activity is not None else {}
        return Card(
            **self._static[number],
            memory_used=None if memory is None else memory.used / MIB,
            memory_free=None if memory is None else memory.free / MIB,
            memory_reserved=None if reserved is None else reserved / MIB,
            utilization=None if rates is None else min(rates.gpu / 100, 1.0),
            sm_active=shares.get("sm_active"),
            tensor_active=shares.get("tensor_active"),
            memory_active=shares.get("memory_active"),
            temperature=told(
                lambda: float(library.nvmlDeviceGetTemperature(handle, library.NVML_TEMPERATURE_GPU))
            ),
            power=told(lambda: library.nvmlDeviceGetPowerUsage(handle) / 1000),
            power_limit=told(lambda: library.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000),
            sm_clock=told(lambda: float(library.nvmlDeviceGetClockInfo(handle, library.NVML_CLOCK_SM))),
            throttle=told(lambda: int(library.nvmlDeviceGetCurrentClocksThrottleReasons(handle))),
            xid=self._last_xid[number] if self._events is not None else None,
            xid_counts={code: float(count) for code, count in self._xids[number].items()}
            if self._events is not None
            else None,
            ecc_corrected=told(lambda: _ecc(library, handle, library.NVML_MEMORY_ERROR_TYPE_CORRECTED)),
            ecc_uncorrected=told(lambda: _ecc(library, handle, library.NVML_MEMORY_ERROR_TYPE_UNCORRECTED)),
            remap_failed=None if remapped is None else bool(remapped[3]),
        )

    def _watch_events(self, library: ModuleType) -> None:
        """Have the driver queue XID errors. Not every card can (and no MIG instance)."""
        try:
            self._events = library.nvmlEventSetCreate()
        except library.NVMLError:
            self._events = None
            return
        watched = 0
        for handle in self._handles:
            with contextlib.suppress(library.NVMLError):
                library.nvmlDeviceRegisterEvents(handle, library.nvmlEventTypeXidCriticalError, self._events)
                watched += 1
        if not watched:
            with contextlib.suppress(library.NVMLError):
                library.nvmlEventSetFree(self._events)
            self._events = None

    def _take_events(self, library: ModuleType) -> None:
        """Count the XID errors that the driver has queued since the last look."""
        if self._events is None:
            return
        for _ in range(MOST_EVENTS):
            try:
                event = library.nvmlEventSetWait_v2(self._events, 0)
            except library.NVMLError as error:
                if error.value in {library.NVML_ERROR_TIMEOUT, library.NVML_ERROR_GPU_IS_LOST}:
                    # A lost card has said so by an error of its own before.
                    return
                raise
            number = self._number(library, event.device)
            if event.eventType == library.nvmlEventTypeXidCriticalError and number is not None:
                code = int(event.eventData)
                self._xids[number][code] += 1
                self._last_xid[number] = code

    def _number(self, library: ModuleType, handle: Any) -> int | None:
        """Which card an event's handle is: handles are pointers of their own, so the UUID tells."""
        uuid = _text(_told(library, lambda: library.nvmlDeviceGetUUID(handle)))
        for number, facts in enumerate(self._static):
            if facts["uuid"] == uuid:
                return number
        return None


def _handle(library: ModuleType, index: int) -> Any:
    """The handle of a card, or None of one that has fallen off the bus: the others are there."""
    try:
        return library.nvmlDeviceGetHandleByIndex(index)
    except library.NVMLError as error:
        if error.value == library.NVML_ERROR_UNINITIALIZED:
            raise
        return None


def _facts(library: ModuleType, handle: Any, index: int) -> dict[str, Any]:
    """What does not change while the driver is loaded."""
    pci = _told(library, lambda: library.nvmlDeviceGetPciInfo(handle).busId)
    minor = _told(library, lambda: library.nvmlDeviceGetMinorNumber(handle))
    return {
        "uuid": _text(_told(library, lambda: library.nvmlDeviceGetUUID(handle))) or f"index-{index}",
        "index": str(index),
        "name": _text(_told(library, lambda: library.nvmlDeviceGetName(handle))),
        "pci": _text(pci),
        "device": "" if minor is None else f"nvidia{minor}",
        "sm_clock_max": _told(
            library, lambda: float(library.nvmlDeviceGetMaxClockInfo(handle, library.NVML_CLOCK_SM))
        ),
    }


def _ecc(library: ModuleType, handle: Any, kind: int) -> float:
    return float(library.nvmlDeviceGetTotalEccErrors(handle, kind, library.NVML_VOLATILE_ECC))


def _told(library: ModuleType, call: Callable[[], Any]) -> Any:
    """What the call gives, or None where the card does not tell; that the driver has gone is raised."""
    try:
        return call()
    except library.NVMLError as error:
        if error.value in {library.NVML_ERROR_UNINITIALIZED, library.NVML_ERROR_DRIVER_NOT_LOADED}:
            raise
        return None


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    return value if isinstance(value, str) else ""
