"""Routes: what the control loop has decided for each model, its alerts, and what an operator may order of
it."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from sidecar.api.backends import CHANGE
from sidecar.api.plane import Admin, Plane
from sidecar.clock import monotonic_ms
from sidecar.control_plane import ControlPlane
from tokenweir.contract.records import ModelControl
from tokenweir.contract.values import PLAIN

WITHOUT_ZERO = r"^[^\x00]*$"
"""No program can be given a word with a zero byte in it."""

router = APIRouter(prefix="/api", tags=["control"])


class ModelView(BaseModel):
    """One model as the control loop sees it."""

    decision: ModelControl = Field(description="as in the snapshot")
    usable: int = Field(description="backends that may get requests: active, and spares in service")
    backends: int = Field(description="of these roles, those that may and those that are missed")
    expected: int = Field(description="of `backends` without spares: what level 4 counts `usable` against")
    waiting: int
    longest_wait_ms: float
    arrivals_per_second: float
    usual_arrivals_per_second: float | None = Field(description="null before there was time to see one")
    freed_tokens_per_second: float
    promoted: list[str] = Field(description="standby backends in service")
    forecast: str = Field(description="of the load, where the model has standby backends")


class ControlView(BaseModel):
    """The control loop."""

    leading: bool = Field(description="whether this sidecar acts; one that does not only follows")
    z: float = Field(description="the policy's margin, widened after an out-of-memory")
    models: dict[str, ModelView]
    restarts: dict[str, str] = Field(description="backend -> how far its restart has come, and why")
    taken_out: dict[str, str] = Field(description="backend -> why its GPU was taken out")
    under_way: list[str] = Field(description="restarts, starts, stops, warm-ups, changes of a variant")


class AlertView(BaseModel):
    """Something that a person should know."""

    kind: str
    subject: str = Field(description="a backend or a model")
    text: str
    since_ms: int
    page: bool = Field(description="no decision of the control loop will mend it")


def alert_views(plane: ControlPlane) -> list[AlertView]:
    """The alerts that stand, oldest first."""
    standing = sorted(plane.loop.alerts.standing.values(), key=lambda alert: alert.since_ms)
    return [
        AlertView(
            kind=alert.kind.value,
            subject=alert.subject,
            text=alert.text,
            since_ms=alert.since_ms,
            page=alert.page,
        )
        for alert in standing
    ]


class VariantChange(BaseModel):
    """The wanted variant."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"arguments": ["--quantization", "fp8"], "precision": "fp8", "deadline_s": 600}]
        },
    )
    arguments: Annotated[
        list[Annotated[str, Field(max_length=4096, pattern=WITHOUT_ZERO)]],
        Field(min_length=1, max_length=256, description="of the engine, in place of its own"),
    ]
    precision: Annotated[str, Field(max_length=16, pattern=PLAIN, description="of the weights then")] = ""
    deadline_s: Annotated[
        float, Field(ge=0, le=86_400, description="how long requests that run there may finish")
    ] = 600


@router.get("/control", summary="Levels, modes, ramps and restarts, with their reasons")
async def control(plane: Plane) -> ControlView:
    now, loop = monotonic_ms(), plane.loop
    models = {
        name: ModelView(
            decision=model.published(),
            usable=model.load.usable,
            backends=model.load.backends,
            expected=model.load.expected,
            waiting=model.load.waiting.depth,
            longest_wait_ms=model.load.waiting.longest(),
            arrivals_per_second=model.burst.arrivals.fast,
            usual_arrivals_per_second=model.burst.arrivals.usual,
            freed_tokens_per_second=model.drain.per_second(now),
            promoted=list(model.spares.promoted),
            forecast=model.spares.reason,
        )
        for name, model in sorted(loop.models.items())
    }
    restarts = {name: loop.recovery.restarts.reason(name) for name in loop.recovery.restarts.plans}
    return ControlView(
        leading=plane.leader.leading,
        z=loop.thresholds(plane.config, now).z,
        models=models,
        restarts={name: reason for name, reason in restarts.items() if reason is not None},
        taken_out=dict(loop.recovery.taken_out),
        under_way=plane.operations.under_way(),
    )


@router.get("/alerts", summary="What a person should know, oldest first")
async def alerts(plane: Plane) -> list[AlertView]:
    return alert_views(plane)


@router.post(
    "/backends/{backend_id}/restart",
    summary="Restart its engine through its actuator",
    status_code=202,
    responses=CHANGE,
)
async def restart(admin: Admin, backend_id: str) -> dict[str, str]:
    """It is restarted as soon as no other of its group is, gets no requests from then on, is warmed, and
    ramped. One that does not serve is restarted at once."""
    admin.restart(backend_id)
    return {"restart": "wanted"}


@router.post(
    "/backends/{backend_id}/return", summary="Bring back a backend that was left out", responses=CHANGE
)
async def bring_back(admin: Admin, backend_id: str) -> dict[str, bool]:
    """After its GPU was mended, or its restarts of an hour were spent: what was counted against it is
    forgotten."""
    return {"was_left_out": admin.bring_back(backend_id)}


@router.post(
    "/backends/{backend_id}/variant",
    summary="Restart its engine with other arguments",
    status_code=202,
    responses=CHANGE,
)
async def variant(admin: Admin, backend_id: str, change: VariantChange) -> dict[str, str]:
    """It is drained, restarted with the arguments, warmed, and ramped."""
    admin.change_variant(backend_id, change.arguments, change.precision, change.deadline_s * 1000)
    return {"variant": "under way"}
