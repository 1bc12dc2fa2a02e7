"""The DCGM exporter's metrics of a server's GPUs.

https://github.com/NVIDIA/dcgm-exporter/blob/main/etc/default-counters.csv
"""

from __future__ import annotations

from sidecar.telemetry.exposition import Page, label
from sidecar.telemetry.readings import CardReading

NAME = "dcgm"


def read(page: Page, at: float) -> CardReading | None:
    """A reading, or None where the page is not the exporter's. Without the reserved part of the frame buffer
    (not exported by default) use is used / (used + free)."""
    used = page.samples("DCGM_FI_DEV_FB_USED")
    utilization = page.mean("DCGM_FI_DEV_GPU_UTIL")
    if not used and utilization is None:
        return None
    free = page.total("DCGM_FI_DEV_FB_FREE")
    sum_used = sum(value for _, value in used)
    xids = [value for _, value in page.samples("DCGM_FI_DEV_XID_ERRORS")]
    return CardReading(
        at=at,
        source=NAME,
        memory_use=sum_used / (sum_used + free) if free is not None and sum_used + free > 0 else None,
        utilization=None if utilization is None else min(max(utilization / 100, 0.0), 1.0),
        sm_active=page.mean("DCGM_FI_PROF_SM_ACTIVE"),
        tensor_active=page.mean("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"),
        temperature=page.mean("DCGM_FI_DEV_GPU_TEMP"),
        power=page.total("DCGM_FI_DEV_POWER_USAGE"),
        xid=max(xids, default=None),
        name=label(used[0][0], "modelName") if used else None,
        cards=len(used),
    )
