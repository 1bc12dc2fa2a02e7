"""Route: the fleet at a glance."""

from __future__ import annotations

from fastapi import APIRouter
from pydantic import BaseModel, Field

from sidecar.api.control import AlertView, alert_views
from sidecar.api.fleet_models import FleetModel, fleet_models
from sidecar.api.plane import Plane
from sidecar.api.shown_state import SHOWN, shown_reason, shown_state
from sidecar.clock import monotonic_ms
from sidecar.departures import departures
from tokenweir.contract.records import Role, State

router = APIRouter(prefix="/api", tags=["fleet"])


class FleetRow(BaseModel):
    """One backend in short."""

    id: str
    url: str
    state: State
    shown: str = Field(description=SHOWN)
    role: Role = Field(description="the role that it has now: a spare in service is active")
    promoted: bool = Field(description="of the role standby, and put into service")
    engine: str
    models: list[str]
    gpu: str = Field(description="as configured; empty: not told")
    precision: str = Field(description="of the weights, as configured; empty: not told")
    memory: float | None
    capacity: int | None = Field(description="KV tokens")
    load: float | None
    in_flight: float
    foreign: float
    low: float | None = Field(description="score of the policy `hybrid` for short outputs")
    high: float | None = Field(description="the same for long outputs")
    ejected_by: dict[str, str] = Field(description="gateway -> why it has taken the backend out")
    tried_by: dict[str, str] = Field(
        description="gateway -> why it had taken the backend out, which it tries again with single requests"
    )
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
    models: dict[str, FleetModel]
    alerts: list[AlertView] = Field(description="those that stand, oldest first")


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
                state=member.state,
                shown=shown_state(plane, member),
                role=member.role,
                promoted=member.promoted,
                engine=member.record.engine_kind,
                models=sorted(member.models()),
                gpu=member.config.gpu or "",
                precision=member.config.precision,
                memory=decision.memory if decision else None,
                capacity=decision.capacity if decision else None,
                load=decision.load if decision else None,
                in_flight=plane.gateways.in_flight(backend_id),
                foreign=decision.foreign.requests if decision else 0,
                low=decision.low if decision else None,
                high=decision.high if decision else None,
                ejected_by=plane.gateways.ejecting(backend_id),
                tried_by=plane.gateways.trying(backend_id),
                reason=shown_reason(plane, member),
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
        models=fleet_models(plane),
        alerts=alert_views(plane),
    )
