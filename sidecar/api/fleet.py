"""Route: the fleet at a glance."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sidecar.api.plane import Plane
from sidecar.clock import monotonic_ms
from sidecar.departures import departures
from tokenweir.contract.records import State

router = APIRouter(prefix="/api", tags=["fleet"])


class FleetRow(BaseModel):
    """One backend in short."""

    id: str
    url: str
    state: str
    engine: str
    models: list[str]
    memory: float | None
    load: float | None
    in_flight: float
    foreign: float
    reason: str


class FleetView(BaseModel):
    """The fleet, who leads it, and what is wrong."""

    sidecar: str
    leading: bool
    leader: str = Field(description="sidecar that publishes, as last seen")
    fence: int
    sequence: int
    snapshot_age_ms: float | None = Field(description="since this sidecar last published; null: never")
    redis: str | None = Field(description="why Redis does not answer; null while it does")
    policy: str
    shadow: str | None
    gateways: int
    ready: int
    changes: list[str] = Field(description="what the admin API has changed of what tokenweir.yaml says")
    backends: list[FleetRow]


@router.get("/fleet", summary="The fleet at a glance")
async def fleet(plane: Plane) -> FleetView:
    now = monotonic_ms()
    decisions = {backend.id: backend for backend in plane.fleet.decide(now)}
    rows = []
    for backend_id, member in plane.fleet.members.items():
        decision = decisions.get(backend_id)
        rows.append(
            FleetRow(
                id=backend_id,
                url=member.config.url,
                state=member.state.value,
                engine=member.record.engine_kind,
                models=sorted(member.models()),
                memory=decision.memory if decision else None,
                load=decision.load if decision else None,
                in_flight=plane.gateways.in_flight(backend_id),
                foreign=decision.foreign.requests if decision else 0,
                reason=plane.fleet.reason(member),
            )
        )
    published_at = plane.publisher.published_at
    return FleetView(
        sidecar=plane.id,
        leading=plane.leader.leading,
        leader=plane.leader.holder,
        fence=plane.leader.fence,
        sequence=plane.publisher.sequence,
        snapshot_age_ms=None if published_at is None else round(now - published_at, 1),
        redis=plane.redis.error,
        policy=plane.config.served_policy.value,
        shadow=plane.config.shadow_policy.value if plane.config.shadow_policy else None,
        gateways=len(plane.gateways.leases),
        ready=sum(1 for member in plane.fleet.members.values() if member.state is State.READY),
        changes=departures(plane.store),
        backends=rows,
    )
