"""Route: the gateways and what they report."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sidecar.api.plane import Plane
from sidecar.clock import wall_ms
from sidecar.control.gateways import waiting

router = APIRouter(prefix="/api/gateways", tags=["gateways"])


class QueueView(BaseModel):
    """Requests that wait for one model."""

    depth: int
    oldest_ms: float


class GatewayView(BaseModel):
    """One gateway by its lease."""

    id: str
    shared: bool = Field(description="another gateway has this gateway_id too: one of them is not counted")
    age_ms: int = Field(description="since it wrote the lease, by the wall clocks of both")
    sequence: int
    snapshot_sequence: int = Field(description="snapshot that it serves by")
    in_flight: dict[str, float]
    held_tokens: dict[str, float]
    queue: dict[str, QueueView]
    ejected: dict[str, str]
    tried: dict[str, str]
    arrivals: dict[str, int]


@router.get("", summary="All gateways whose lease lives")
async def gateways(plane: Plane) -> list[GatewayView]:
    now = wall_ms()
    shared = plane.gateways.clashes.ids(now)
    return [
        GatewayView(
            id=lease.id,
            shared=lease.id in shared,
            age_ms=max(0, now - lease.time_ms),
            sequence=lease.sequence,
            snapshot_sequence=lease.snapshot_sequence,
            in_flight={name: load.n for name, load in lease.backends.items()},
            held_tokens={name: load.held for name, load in lease.backends.items()},
            queue={
                model: QueueView(depth=queue.depth, oldest_ms=waiting(queue).longest())
                for model, queue in lease.queue.items()
            },
            ejected=dict(lease.ejected),
            tried=dict(lease.tried),
            arrivals=dict(lease.arrivals),
        )
        for lease in plane.gateways.leases.values()
    ]
