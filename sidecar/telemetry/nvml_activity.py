"""What the multiprocessors, the tensor cores and the memory interface of a card do, by NVML's GPU performance
monitoring: cards since Hopper have it.
https://docs.nvidia.com/deploy/nvml-api/group__nvmlGpmFunctions.html
"""

from __future__ import annotations

import contextlib
from types import ModuleType
from typing import Any


class Activity:
    """A card's performance monitoring: shares of the time between two samples."""

    def __init__(self, library: ModuleType, handle: Any, first: Any, second: Any) -> None:
        self._library = library
        self._handle = handle
        self._before, self._spare = first, second
        self._metrics = {
            library.NVML_GPM_METRIC_SM_UTIL: "sm_active",
            library.NVML_GPM_METRIC_ANY_TENSOR_UTIL: "tensor_active",
            library.NVML_GPM_METRIC_DRAM_BW_UTIL: "memory_active",
        }

    @classmethod
    def of(cls, library: ModuleType, handle: Any) -> Activity | None:
        """Of a card that has it, else None."""
        try:
            if not library.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                return None
            first, second = library.nvmlGpmSampleAlloc(), library.nvmlGpmSampleAlloc()
            library.nvmlGpmSampleGet(handle, first)
        except library.NVMLError:
            return None
        return cls(library, handle, first, second)

    def shares(self) -> dict[str, float]:
        """Name in `Card` -> share since the call before."""
        library = self._library
        asked = library.c_nvmlGpmMetricsGet_t()
        asked.version = library.NVML_GPM_METRICS_GET_VERSION
        asked.numMetrics = len(self._metrics)
        for place, metric in enumerate(self._metrics):
            asked.metrics[place].metricId = metric
        try:
            library.nvmlGpmSampleGet(self._handle, self._spare)
            asked.sample1, asked.sample2 = self._before, self._spare
            library.nvmlGpmMetricsGet(asked)
        except library.NVMLError:
            return {}
        self._before, self._spare = self._spare, self._before
        found = {}
        for place, name in enumerate(self._metrics.values()):
            metric = asked.metrics[place]
            if metric.nvmlReturn == library.NVML_SUCCESS and 0 <= metric.value <= 100:
                found[name] = metric.value / 100
        return found

    def close(self) -> None:
        """Give the samples back."""
        for sample in (self._before, self._spare):
            with contextlib.suppress(self._library.NVMLError):
                self._library.nvmlGpmSampleFree(sample)
