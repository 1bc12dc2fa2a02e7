"""What the admin API shows of a backend: its configuration, every measured value with its age and source, and
what was decided."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, Field

from sidecar.api.measured import IndicatorView, Measured, indicators, measured
from sidecar.api.shown_state import SHOWN, shown_reason, shown_state
from sidecar.clock import monotonic_ms
from sidecar.control.member import Member
from sidecar.control_plane import ControlPlane
from tokenweir.contract.records import Backend


class DrainView(BaseModel):
    """How far a drain has come."""

    in_flight: float
    done: bool
    reason: str


class BackendView(BaseModel):
    """One backend."""

    id: str
    url: str
    address: str | None = Field(description="resolved; null while the name does not resolve")
    state: str
    shown: str = Field(description=SHOWN)
    reason: str
    engine: str
    role: str
    models: dict[str, str] = Field(description="public name -> the engine's name")
    in_flight: float = Field(description="requests that the gateways have there")
    drain: DrainView | None = Field(description="while it drains or leaves")
    leaving: bool = Field(description="removed; it goes when it is empty")
    measured: dict[str, Measured] = Field(description="what is not told is not there")
    indicators: dict[str, IndicatorView]
    notes: dict[str, str] = Field(description="what cannot be read, and why")
    ejected_by: dict[str, str] = Field(description="gateway -> why it has taken the backend out")
    tried_by: dict[str, str] = Field(
        description="gateway -> why it had taken the backend out, which it tries again with single requests"
    )
    decision: Backend | None = Field(description="as in the snapshot; null without an address")
    configuration: dict[str, Any]


def backend_view(plane: ControlPlane, member: Member, decision: Backend | None) -> BackendView:
    """The view of a member; `decision` as of this moment."""
    backend_id = member.config.id
    drain = plane.fleet.drain_progress(backend_id) if member.drains else None
    return BackendView(
        id=backend_id,
        url=member.config.url,
        address=member.address,
        state=member.state.value,
        shown=shown_state(plane, member),
        reason=shown_reason(plane, member),
        engine=member.record.engine_kind,
        role=member.role.value,
        models=member.models(),
        in_flight=plane.gateways.in_flight(backend_id),
        drain=None
        if drain is None
        else DrainView(in_flight=drain.in_flight, done=drain.done, reason=drain.reason),
        leaving=member.leaving_since is not None,
        measured=measured(member.record, monotonic_ms()),
        indicators=indicators(member.record),
        notes=dict(member.record.notes),
        ejected_by=plane.gateways.ejecting(backend_id),
        tried_by=plane.gateways.trying(backend_id),
        decision=decision,
        configuration=member.config.model_dump(mode="json", exclude_unset=True),
    )
